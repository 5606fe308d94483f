"""Runs the broker as processes: the gateway, the pipeline, and the supervisor that restarts them."""
