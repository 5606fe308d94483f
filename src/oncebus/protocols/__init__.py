"""The protocols that clients and people speak to a broker, and what an entity looks like from outside."""
