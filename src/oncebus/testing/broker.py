"""The broker that tests use: it runs in a thread of their process, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from oncebus.model.access import KeyFile
from oncebus.programs.serve import entities_file
from oncebus.programs.serve.addresses import ClientAddress, Sockets
from oncebus.programs.serve.gateway import start_over
from oncebus.protocols.emulator import config
from oncebus.protocols.listening import listen
from oncebus.protocols.management.documents import read_document
from oncebus.protocols.management.entity_file import EntityFile
from oncebus.testing import BrokerFailed
from oncebus.testing.life import Life
from oncebus.testing.pipelines import InProcess, OnSpark
from oncebus.values.settings import Settings

T = TypeVar("T")

Entities = str | os.PathLike[str] | Sequence[str | Mapping[str, Any]]
"""A file with entities, or a list of them: names of queues, and descriptions as in an entities file."""

CALL_SECONDS = 120.0
_HOST = "127.0.0.1"
_MEMORY = Path("/dev/shm")
_ENOUGH_MEMORY = 512 << 20


class Broker:
    """A broker for tests. Clients connect with `connection_string`; any thread may call the methods."""

    connection_string: str
    """The connection string of a rule with Manage. It stays the same until the broker ends."""

    url: str
    """The address for HTTP, at the same port: `POST {url}/$reset` and the portal, for example."""

    def __init__(self, folder: Path, listener: socket.socket, *, spark: bool) -> None:
        """Use `run_broker` instead."""
        port = listener.getsockname()[1]
        self._settings = Settings(host=_HOST, port=port, http_port=port, amqp_port=port, shards=1, ephemeral=True)
        self._keys = KeyFile(folder / "keys.json")
        self._keys.create()
        sockets = Sockets(listener, listener, listener)
        self.url = sockets.url(self._settings)
        self.connection_string = ClientAddress.of(self._settings, port).connection_string(self._keys.rules()[0])
        self._folder = folder
        self._listener = listener
        self._pipeline = OnSpark if spark else InProcess
        self._given: list[EntityFile] = []
        self._numbers = itertools.count(1)
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._life: Life

    # For tests

    def entities(self, *given: Entities) -> None:
        """Create these entities, here and after each `reset`. Existing ones stay as they are.

        Each is a file, which has the form of `--entities` or of the official emulator's `Config.json`, or a list with
        names of queues and with objects as in such a file. Raises `OncebusError` if one cannot be used.
        """
        files = [_read(each) for each in given]
        self._given += files
        self._add(files)

    def create(self, *given: Entities) -> None:
        """Create these entities until the next `reset`. They are given as for `entities`."""
        self._add([_read(each) for each in given])

    def reset(self) -> None:
        """Forget all messages, ids and entities, lost answers too, and create the entities of `entities` again.

        Time is that of the machine again. Clients that are connected stay so, unless `advance` was called.
        With Spark, time goes on from where `advance` has put it.
        """
        self._call(self._reset())

    def advance(self, seconds: float | timedelta) -> None:
        """Move the broker's time forward, and return once everything has happened that is due by then.

        Locks end, scheduled messages arrive, messages expire and ids are forgotten. Tokens of clients do not expire.
        """
        length = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if length < timedelta(0):
            raise ValueError(f"Time cannot go back: {length.total_seconds():g} seconds.")
        self._call(self._life.advance(round(length / timedelta(microseconds=1))))

    def lose_answers(self, count: int = 1) -> None:
        """Accept the next `count` sends, but cut all connections instead of answering: clients cannot know.

        A client that sends again makes a duplicate.
        """
        self._call(self._life.lose_answers(count))

    def duplicates(self, entity: str) -> list[str]:
        """Return the message ids that were dropped as duplicates at a queue or topic since the reset, in their order.

        Raises `NotFound`.
        """
        return self._call(self._life.duplicates(entity))

    # For `start`

    def run(self, started: Future[None], ended: Future[Callable[[], object]]) -> None:
        """Run the broker in this thread, until the function that `ended` gets is called."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run(started, ended))
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            else:
                raise
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _run(self, started: Future[None], ended: Future[Callable[[], object]]) -> None:
        stopping = asyncio.Event()
        ended.set_result(lambda: self._loop.call_soon_threadsafe(stopping.set))
        try:
            await self._begin()
            started.set_result(None)
            await stopping.wait()
        finally:
            await self._stack.aclose()

    async def _begin(self) -> None:
        self._life = await self._stack.enter_async_context(
            Life.live(
                self._settings,
                self._folder / str(next(self._numbers)),
                self._keys,
                self._listener,
                self._pipeline,
                self._reset,
            )
        )

    async def _reset(self) -> None:
        if self._life.may_stay:
            self._life.lose_nothing()
            await start_over(self._life.broker, self._given)
            return
        await self._stack.aclose()
        await self._begin()
        await self._life.add(self._given)

    def _add(self, files: Sequence[EntityFile]) -> None:
        self._call(self._life.add(files))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise BrokerFailed("The broker has ended.")
        try:
            self._life.check()
        except BrokerFailed:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)


@contextmanager
def start(entities: Sequence[Entities], spark: bool) -> Iterator[Broker]:
    """Run a broker for a block. See `oncebus.testing.run_broker`."""
    files = [_read(each) for each in entities]
    with (
        tempfile.TemporaryDirectory(prefix="oncebus-", dir=_place(), ignore_cleanup_errors=True) as folder,
        contextlib.closing(listen(_HOST, 0)) as listener,
    ):
        broker = Broker(Path(folder), listener, spark=spark)
        started: Future[None] = Future()
        ended: Future[Callable[[], object]] = Future()
        thread = threading.Thread(target=broker.run, args=(started, ended), name="oncebus", daemon=True)
        thread.start()
        try:
            started.result()
            if files:
                broker._given += files
                broker._add(files)
            yield broker
        finally:
            ended.result()()
            thread.join()


def _read(given: Entities) -> EntityFile:
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        document = read_document(path, entities_file.WHAT, trailing_commas=True)
        if isinstance(document, list):
            return EntityFile.of(document, f"{entities_file.WHAT} '{path}'", entities_file.read_entities)
        return EntityFile.of(document, f"{config.WHAT} '{path}'", config.read_config)
    items = [{"name": each} if isinstance(each, str) else each for each in given]
    return EntityFile.of(items, "The list of entities", entities_file.read_entities)


def _place() -> Path | None:
    """Return where the data of a broker is kept that nobody needs later: in memory, if there is enough of it."""
    with contextlib.suppress(OSError):
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ENOUGH_MEMORY:
            return _MEMORY
    return None
