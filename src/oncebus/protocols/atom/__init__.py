"""Atom: the management API of Service Bus' administration clients, served by a broker."""
