"""Knows which messages the stream has already taken, so that one whose lock was lost is not taken twice."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from oncebus.connector.spool import Identity


class Known(Enum):
    """What the stream knows about a delivered message."""

    NEW = "new"
    TAKEN = "taken"
    """It waits for its batch, or its batch is not finished yet."""
    FINISHED = "finished"
    """Spark has finished its batch: it can be completed."""


class Deliveries:
    """The messages that are taken and not yet completed.

    A message becomes known when it is delivered first. A message of a finished batch is known until the broker has
    confirmed its completion: after that it does not come back.
    """

    def __init__(self, left: Iterable[Identity] = ()) -> None:
        self._waiting: set[Identity] = set()
        self._batches: dict[int, set[Identity]] = {}
        self._taken: set[Identity] = set()
        self._finished = set(left)

    def state_of(self, identity: Identity) -> Known:
        """Return what is known about a message."""
        if identity in self._finished:
            return Known.FINISHED
        return Known.TAKEN if identity in self._taken or identity in self._waiting else Known.NEW

    def wait(self, identity: Identity) -> None:
        """Note a new message, which waits for a batch."""
        self._waiting.add(identity)

    def forget(self, identity: Identity) -> None:
        """Forget a waiting message. It is new if it is delivered again."""
        self._waiting.discard(identity)

    def note_spooled(self, number: int, identities: Iterable[Identity]) -> None:
        """Note the messages of a batch in the spool."""
        batch = self._batches[number] = set(identities)
        self._taken |= batch
        self._waiting -= batch

    def finish(self, before: int) -> None:
        """Note that Spark has finished all batches below `before`."""
        for number in [number for number in self._batches if number < before]:
            batch = self._batches.pop(number)
            self._finished |= batch
            self._taken -= batch

    def confirm(self, identities: Iterable[Identity]) -> None:
        """Forget messages whose completion the broker has confirmed."""
        self._finished.difference_update(identities)

    @property
    def finished(self) -> frozenset[Identity]:
        """The messages that are to be completed."""
        return frozenset(self._finished)
