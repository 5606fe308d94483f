"""Admission: which messages are accepted, and when."""

from __future__ import annotations

from collections.abc import Sequence

from oncebus.broker import addresses
from oncebus.broker.accounting import Accounting
from oncebus.broker.entities import Entities
from oncebus.broker.sending import Incoming, check, check_forget, check_quota, empty_batch
from oncebus.model.entities import Queue, Topic


class Admission:
    """Checks messages against their entity and the available room, and lets them wait for their turn."""

    def __init__(self, entities: Entities, accounting: Accounting) -> None:
        self.entities = entities
        self._accounting = accounting

    def check(self, path: str, messages: Sequence[Incoming]) -> tuple[Queue | Topic, int]:
        """Return the entity at a path and the size of the messages. Raises unless it accepts them.

        Does not check the room.
        """
        catalogue = self.entities.catalogue
        entity = addresses.sendable(catalogue, path)
        if not messages:
            raise empty_batch()
        size = check(entity, catalogue.namespace, messages)
        self.entities.note_use(entity)
        return entity, size

    def check_forget(self, path: str, message: Incoming) -> Queue | Topic:
        """Return the entity at a path. Raises unless it can forget the id of a message, and the pipeline has room."""
        entity = addresses.sendable(self.entities.catalogue, path)
        check_forget(entity, message)
        self._accounting.check_room(entity, 0)
        return entity

    def check_room(self, entity: Queue | Topic, size: int) -> None:
        """Raise unless there is room for `size` bytes in the pipeline and in the entity's quota."""
        self._accounting.check_room(entity, size)
        check_quota(entity, self._accounting.held(entity), size)

    def has_turn(self, entity: Queue | Topic, messages: int, size: int) -> bool:
        """Return whether messages may enter the pipeline without waiting for their turn."""
        return self._accounting.shares.has_room(entity.id, self._accounting.work_of(entity.id, messages, size))

    async def turn(self, entity: Queue | Topic, messages: int, size: int) -> bool:
        """Wait until messages may enter the pipeline. Return whether there was a wait. Raises `ServerBusy`."""
        if self.has_turn(entity, messages, size):
            return False
        work = self._accounting.work_of(entity.id, messages, size)
        await self._accounting.shares.turn(entity.id, work, size)
        return True
