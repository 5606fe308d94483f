"""Atom: the management API that Service Bus' administration clients speak, over a broker."""
