"""What was judged and not yet taken: an entry per micro-batch, written by Spark and read by the gateway."""

from oncebus.outbox.outbox import Begun, Entry, Outbox
from oncebus.outbox.part import Batch, OutboxDamaged, OutboxError, OutboxPart, write_part

__all__ = ["Batch", "Begun", "Entry", "Outbox", "OutboxDamaged", "OutboxError", "OutboxPart", "write_part"]
