"""Wakes whoever has something to do because messages were put back, or may be requeued."""

from __future__ import annotations

import asyncio

from oncebus.broker.catalogues import Catalogues
from oncebus.broker.waiting import Arrivals
from oncebus.engine.store import Place, SubQueue


class Wakeups:
    """Wakes the chores and the receivers."""

    def __init__(self, catalogues: Catalogues, arrivals: Arrivals) -> None:
        self._catalogues = catalogues
        self._arrivals = arrivals
        # Set when the chores should begin their next round now. They clear it.
        self.chores = asyncio.Event()

    def wake_chores(self) -> None:
        """Start the next round now: there may be something to requeue, or a new time at which a message falls due."""
        self.chores.set()

    def note_settled(self, entity: int) -> None:
        """Wake receivers and requeue, because messages of an entity were abandoned, deferred or dead-lettered."""
        self._arrivals.notify([Place(entity, sub_queue) for sub_queue in SubQueue])
        policy = self._catalogues.policies.get(entity)
        if policy is not None and (policy.forward_to, policy.forward_dead_letters_to) != (None, None):
            self.wake_chores()
