"""Runs `oncebus serve` with Spark for a block of a test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.store import Mode

from .clients import Running, all_end, everything_below
from .disk import SmallDisk

PATIENCE = 60.0
"""How long a message may take while Spark restarts on a busy machine."""


@contextmanager
def service(
    folder: Path,
    name: str,
    entities: Sequence[dict[str, object]] = (),
    *,
    disk: SmallDisk | None = None,
    options: Sequence[str | Path] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run a broker over the folder `data` in `folder` or on the disk. No process is left behind."""
    (folder / "entities.json").write_text(json.dumps(entities))
    data = (disk.path if disk is not None else folder) / "data"
    places: list[str | Path] = ["--data", data, "--entities", folder / "entities.json"]
    words = ["serve", "--http-port", "0", "--amqp-port", "0", "--master", "local[1]", *places, *options]
    words.append("--print-connection-string")
    running = Running(folder, name, words, within=disk.within if disk is not None else (), **environment or {})
    try:
        yield running
    finally:
        below = everything_below(running.process.pid) if running.process.poll() is None else []
        running.clean_up()
        all_end(below, "the child processes end too")


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[Broker]:
    """Open the broker object over the data folder of a stopped service, without a pipeline."""
    broker = await Broker.open(Engine.files(Folders(data), 2))
    try:
        yield broker
    finally:
        await broker.close()


async def everything_in(broker: Broker, queue: str, session: str | None = None) -> list[str]:
    """Receive and delete all messages of a queue, or of one of its sessions. Return their ids in order."""
    found: list[str] = []
    address = Address(queue)
    lock = await broker.accept_session(address, session) if session is not None else None
    while batch := await broker.receive(address, 1000, mode=Mode.RECEIVE_AND_DELETE, session=lock):
        found += [each.message.message_id for each in batch]
    return found
