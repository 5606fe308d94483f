"""What was judged and not yet taken: an entry per micro-batch, written by Spark and read by the gateway."""

from oncebus.outbox.outbox import Entry, Outbox
from oncebus.outbox.part import OutboxDamaged, OutboxError, OutboxPart, write_part

__all__ = ["Entry", "Outbox", "OutboxDamaged", "OutboxError", "OutboxPart", "write_part"]
