"""Monitoring: the broker's metrics and its health."""
