"""The durable parts of a broker in PostgreSQL, which several gateways share."""
