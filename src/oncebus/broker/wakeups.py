"""Wakes the chores when they have something to do."""

from __future__ import annotations

import asyncio

from oncebus.broker.catalogues import Catalogues


class Wakeups:
    """Wakes the chores. The store thread wakes receivers."""

    def __init__(self, catalogues: Catalogues) -> None:
        self._catalogues = catalogues
        # Set when the chores should begin their next round now. They clear it.
        self.chores = asyncio.Event()

    def wake_chores(self) -> None:
        """Start the next round now: there may be something to requeue, or a new time at which a message falls due."""
        self.chores.set()

    def note_settled(self, entity: int) -> None:
        """Wake requeue, because messages of an entity were abandoned or dead-lettered, and may have to be forwarded."""
        policy = self._catalogues.policies.get(entity)
        if policy is not None and (policy.forward_to, policy.forward_dead_letters_to) != (None, None):
            self.wake_chores()
