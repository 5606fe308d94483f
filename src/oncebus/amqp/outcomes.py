"""What became of a delivery, and errors.

An outcome is AMQP's delivery state. `Accepted()` and `Released()` that were read may be one object for many deliveries:
do not change them.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncebus.amqp.composites import Bool, Fields, Name, Text, Uint, Ulong, composite
from oncebus.amqp.types import Described

_FEW_WORDS = 100


@composite(0x1D, "error")
@dataclass(slots=True)
class AmqpError:
    """An error for the peer, or of it: `amqp:not-found`, words for people, and details by name."""

    condition: Name
    description: Text | None = None
    info: Fields | None = None

    def shortened(self) -> AmqpError:
        """The same without details, for peers of small frames."""
        return AmqpError(self.condition, self.description and self.description[:_FEW_WORDS])


@composite(0x23, "received")
@dataclass(slots=True)
class Received:
    """How much of the delivery has arrived. Not an outcome yet."""

    section_number: Uint
    section_offset: Ulong


@composite(0x24, "accepted")
@dataclass(slots=True)
class Accepted:
    """It was taken."""


@composite(0x25, "rejected")
@dataclass(slots=True)
class Rejected:
    """It is unfit, for the reason that `error` tells."""

    error: AmqpError | None = None


@composite(0x26, "released")
@dataclass(slots=True)
class Released:
    """It was not looked at and may go to another."""


@composite(0x27, "modified")
@dataclass(slots=True)
class Modified:
    """It may be delivered again, changed so."""

    delivery_failed: Bool | None = None
    undeliverable_here: Bool | None = None
    message_annotations: Fields | None = None


Outcome = Accepted | Rejected | Released | Modified | Received | Described
"""Outcomes of transactions are not known here and stay described values."""
