"""The path from the inbox to the outbox: one Structured Streaming query."""
