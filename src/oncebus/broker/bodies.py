"""Bodies of messages.

A large body has its own file, which is written before the row that names it and deleted after the message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from oncebus.amqp.types import DecodeError
from oncebus.broker.background import Background
from oncebus.engine import engine
from oncebus.engine.inbox import InboxError
from oncebus.engine.store import Message
from oncebus.model.entities.detection_keys import CountedId, body_id
from oncebus.values.threads import Threads

log = logging.getLogger(__name__)

KEPT_SECONDS = 30.0
"""How long a body file outlives its message: a receiver that just got the message may still be reading it."""

MOST_AT_ONCE = 10_000


class Bodies:
    """The bodies that have their own files."""

    def __init__(self, body_files: engine.Bodies, background: Background, threads: Threads) -> None:
        self._threads = threads
        self._body_files = body_files
        self._background = background
        # Files that no message needs, and since when that is known.
        self._unused: dict[str, float] = {}
        # Files of rows that were refused.
        self._refused: deque[list[str]] = deque()

    async def write(self, bodies: Sequence[bytes]) -> list[str]:
        """Make bodies durable and return their file names. If this fails or is cancelled, none of the files stays."""
        writing = self._threads.run(self._write_all, bodies)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            # The thread cannot be stopped. Delete its files when it has finished.
            self._background.start(self._undo(writing))
            raise

    async def read(self, name: str) -> bytes:
        """Read a body. Raises `FileNotFoundError` or `InboxDamaged`."""
        return await self._threads.run(lambda: bytes(self._body_files.read(name)))

    async def ids(self, names: Sequence[str]) -> dict[str, CountedId]:
        """Return the ids of bodies by file name. Leaves out bodies that cannot be read."""
        found: dict[str, CountedId] = {}
        for name in names:
            try:
                identity = await self._threads.run(self._id, name)
            except (FileNotFoundError, InboxError, DecodeError) as error:
                log.warning("The body '%s' cannot be read: %s", name, error)
            else:
                if identity is not None:
                    found[name] = identity
        return found

    def discard(self, names: Sequence[str]) -> None:
        """Delete files that no row will ever name, in the background."""
        if names:
            self._background.start(self._delete(names))

    def refused(self, names: list[str]) -> None:
        """Record files whose rows were refused. They are kept as long as a crash could bring those rows back."""
        if names:
            self._refused.append(names)

    async def delete_refused(self) -> None:
        """Delete the files of refused rows. Call it when no crash can bring those rows back."""
        for _ in range(len(self._refused)):
            await self._delete(self._refused[0])
            self._refused.popleft()

    async def delete_unused(self, unused: Sequence[str]) -> list[str]:
        """Delete those files in `unused` that have been unused for `KEPT_SECONDS`, and return their names."""
        now = asyncio.get_running_loop().time()
        self._unused = {name: self._unused.get(name, now) for name in unused}
        old = [name for name, since in self._unused.items() if now - since >= KEPT_SECONDS]
        if old:
            await self._delete(old)
        return old

    def _id(self, name: str) -> CountedId | None:
        return body_id(bytes(self._body_files.read(name)))

    def _write_all(self, bodies: Sequence[bytes]) -> list[str]:
        names: list[str] = []
        try:
            for body in bodies:
                names += [self._body_files.write(body)]
        except BaseException:
            self._body_files.delete(names)
            raise
        return names

    async def _undo(self, writing: asyncio.Future[list[str]]) -> None:
        await self._delete(await writing)

    async def _delete(self, names: Sequence[str]) -> None:
        await self._threads.run(self._body_files.delete, names)


class Received(NamedTuple):
    """A delivered message with its whole body."""

    message: Message
    body: bytes


async def with_bodies(messages: Sequence[Message], bodies: Bodies) -> list[Received]:
    """Return the messages with their bodies. Leaves out messages whose body cannot be read.

    A message that is left out and was locked stays locked until its lock expires, and is then delivered again.
    """
    whole = []
    for message in messages:
        if message.body_file is None:
            whole.append(Received(message, message.body or b""))
            continue
        try:
            body = await bodies.read(message.body_file)
        except Exception as error:
            # Any error: even no memory or no thread for one message is no reason to lose the others.
            log.error("Cannot read the body of message %d of entity %d: %s", message.sequence, message.entity, error)
        else:
            whole.append(Received(message, body))
    return whole
