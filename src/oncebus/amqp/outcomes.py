"""Outcomes of deliveries (AMQP's delivery states), and errors.

Decoded `Accepted` and `Released` objects may be shared between deliveries: do not change them.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.amqp.composites import Binary, Bool, Fields, Name, Text, Uint, Ulong, composite
from oncebus.amqp.types import Described

_FEW_WORDS = 100


@composite(0x1D, "error")
@dataclass(slots=True)
class AmqpError:
    """An error to or from the peer: a condition such as `amqp:not-found`, a text for people, and details by name."""

    condition: Name
    description: Text | None = None
    info: Fields | None = None

    def shorten(self) -> AmqpError:
        """Return the error without details and with a short text, for peers with a small frame size."""
        return AmqpError(self.condition, self.description and self.description[:_FEW_WORDS])


@composite(0x23, "received")
@dataclass(slots=True)
class ReceivedState:
    """The receiver reports how much of the delivery has arrived. This is not a final outcome."""

    section_number: Uint
    section_offset: Ulong


@composite(0x24, "accepted")
@dataclass(slots=True)
class Accepted:
    """The receiver accepted the delivery."""


@composite(0x25, "rejected")
@dataclass(slots=True)
class Rejected:
    """The receiver rejected the delivery as invalid; `error` has the reason."""

    error: AmqpError | None = None


@composite(0x26, "released")
@dataclass(slots=True)
class Released:
    """The receiver did not process the delivery. It may go to another receiver."""


@composite(0x27, "modified")
@dataclass(slots=True)
class Modified:
    """The delivery may be delivered again, with these changes."""

    delivery_failed: Bool | None = None
    undeliverable_here: Bool | None = None
    message_annotations: Fields | None = None


@composite(0x33, "declared")
@dataclass(slots=True)
class Declared:
    """The coordinator has begun a transaction with this id."""

    txn_id: Binary


@composite(0x34, "transactional-state")
@dataclass(slots=True)
class TransactionalState:
    """The delivery belongs to a transaction. `outcome` counts once the transaction is committed."""

    txn_id: Binary
    outcome: Accepted | Rejected | Released | Modified | ReceivedState | Described | None = None


DeliveryState = Accepted | Rejected | Released | Modified | ReceivedState | Declared | TransactionalState | Described
"""An unknown outcome stays a described value."""
