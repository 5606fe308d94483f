"""Admission: which messages are accepted, and the rows that they become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncebus.broker import addresses
from oncebus.broker.sending import (
    Incoming,
    check,
    check_forget,
    check_quota,
    empty_batch,
    forget_of,
    number_of,
    row_of,
    with_id,
)
from oncebus.engine.inbox import Row
from oncebus.model.entities import Queue, Topic
from oncebus.model.messages import LARGEST_INLINE_BODY

if TYPE_CHECKING:
    from oncebus.broker.core import Core


class Admission:
    """Checks messages against their entity and the available room, and numbers them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turn = 0

    def check(self, path: str, messages: Sequence[Incoming]) -> tuple[Queue | Topic, int]:
        """Return the entity at a path and the size of the messages. Raises unless it accepts them.

        Does not check the room.
        """
        entity = addresses.sendable(self._core.catalogue, path)
        if not messages:
            raise empty_batch()
        size = check(entity, self._core.catalogue.namespace, messages)
        self._core.note_access(entity)
        return entity, size

    def check_forget(self, path: str, message: Incoming) -> Queue | Topic:
        """Return the entity at a path. Raises unless it can forget the id of a message, and the pipeline has room."""
        entity = addresses.sendable(self._core.catalogue, path)
        check_forget(entity, message)
        self._core.check_room(entity, 0)
        return entity

    def forget(self, entity: Queue | Topic, message: Incoming) -> Row:
        """Return the row that forgets the key of a message."""
        return forget_of(entity, message, self._core.numbers, self._core.clock.stamp())

    def check_room(self, entity: Queue | Topic, size: int) -> None:
        """Raise unless there is room for `size` bytes in the pipeline and in the entity's quota."""
        self._core.check_room(entity, size)
        check_quota(entity, self._core.held(entity), size)

    def has_turn(self, entity: Queue | Topic, messages: int, size: int) -> bool:
        """Return whether messages may enter the pipeline without waiting for their turn."""
        return self._core.shares.has_room(entity.id, self._core.work_of(entity.id, messages, size))

    async def turn(self, entity: Queue | Topic, messages: int, size: int) -> bool:
        """Wait until messages may enter the pipeline. Return whether there was a wait. Raises `ServerBusy`."""
        if self.has_turn(entity, messages, size):
            return False
        await self._core.shares.turn(entity.id, self._core.work_of(entity.id, messages, size), size)
        return True

    def number(self, entity: Queue | Topic, message: Incoming) -> int:
        """Give a message that has an id its sequence number in advance. See `row_of`."""
        self._turn += 1
        return number_of(entity, message, self._core.numbers, self._turn)

    def rows(self, entity: Queue | Topic, messages: Sequence[Incoming], names: Sequence[str]) -> list[Row]:
        """Return the rows of messages. `names` has the body files of the large messages, in the same order."""
        complete = [(message, True) if message.message_id else with_id(message) for message in messages]
        now, files = self._core.clock.stamp(), iter(names)
        return [
            self.row(
                entity,
                message,
                now,
                has_own_id=has_own_id,
                body_file=next(files) if len(message.body) > LARGEST_INLINE_BODY else None,
            )
            for message, has_own_id in complete
        ]

    def row(
        self,
        entity: Queue | Topic,
        message: Incoming,
        now: int,
        *,
        has_own_id: bool,
        body_file: str | None,
        sequence: int | None = None,
    ) -> Row:
        """Return the row of one message. See `row_of`.

        Under a detection key, a message counts even if its sender gave it no MessageId.
        """
        self._turn += 1
        return row_of(
            entity,
            message,
            self._core.numbers,
            now,
            self._turn,
            is_checked=has_own_id or entity.detection_key is not None,
            body_file=body_file,
            sequence=sequence,
        )
