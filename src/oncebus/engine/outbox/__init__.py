"""The outbox: holds the processed rows of each micro-batch until the store ingests them.

Spark writes; the gateway reads.
"""

from oncebus.engine.outbox.outbox import Entry, Outbox
from oncebus.engine.outbox.part import Batch, OutboxDamaged, OutboxError, OutboxPart, refuse_late, write_part

__all__ = [
    "Batch",
    "Entry",
    "Outbox",
    "OutboxDamaged",
    "OutboxError",
    "OutboxPart",
    "refuse_late",
    "write_part",
]
