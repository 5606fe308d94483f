"""`python -m abuse.house JSON`: very many AMQP connections of one role to a gateway, until standard input ends.

It writes a line when all are connected, and one at the end with the number that the gateway closed. See `full_of`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from oncebus.amqp.frames import SASL_HEADER
from oncebus.amqp.performatives import Attach, Source
from tests.abuse.attackers import allow_descriptors, amqp_connection
from tests.abuse.gateways import Gateway
from tests.amqp.client import credit, receiver, written
from tests.amqp.sockets import Socket
from tests.programs.serve.programs import ROOT

_AT_ONCE = 50
_PAUSE = 1.0
"""Seconds that a stranger waits after it was disconnected. Without this, the machine would do nothing but connect."""


class Role(StrEnum):
    """The behaviour of a connection."""

    RECEIVER = "receiver"
    """Authenticates, and waits for a message in an empty queue."""
    SIGNED_IN = "signed-in"
    """Authenticates, and does nothing."""
    STRANGER = "stranger"
    """Begins SASL and never continues. Reconnects whenever it is disconnected."""


class House:
    """The connections of one process."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._role, self._port, self._queue = Role(given["role"]), given["port"], given["queue"]
        self._rule = (given["rule"], given["key"])
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self.cut = 0

    async def one(self, is_there: asyncio.Event) -> None:
        """Keep one connection open until the gateway closes it. Only strangers reconnect."""
        if self._role is not Role.STRANGER:
            await self._client(is_there)
            return
        while True:
            with contextlib.suppress(OSError):
                await self._turns.acquire()
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                finally:
                    self._turns.release()
                try:
                    writer.write(SASL_HEADER)
                    is_there.set()
                    while await reader.read(4096):
                        pass
                finally:
                    writer.transport.abort()
            self.cut += 1
            await asyncio.sleep(_PAUSE)

    async def _client(self, is_there: asyncio.Event) -> None:
        async with self._turns:
            stack = contextlib.AsyncExitStack()
            socket = await stack.enter_async_context(amqp_connection(self._port, self._rule))
            if self._role is Role.RECEIVER:
                await attach(socket, self._queue)
        async with stack:
            is_there.set()
            # Ignore the gateway's heartbeats until the connection ends.
            with contextlib.suppress(OSError):
                while await socket.reader.read(4096):
                    pass
            self.cut += 1


async def attach(socket: Socket, queue: str) -> None:
    """Attach a receiver with credit for one message."""
    await socket.say(written(receiver(source=Source(queue))), written(credit(1)))
    (answer,) = await socket.expect(Attach)
    assert answer.source is not None, "a receiver was refused"


async def _play(given: dict[str, Any]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    house = House(given)
    arrivals = [asyncio.Event() for _ in range(given["count"])]
    ones = [asyncio.create_task(house.one(each)) for each in arrivals]
    for one, arrival in zip(ones, arrivals, strict=True):
        arriving = asyncio.create_task(arrival.wait())
        await asyncio.wait({one, arriving}, return_when=asyncio.FIRST_COMPLETED)
        if one.done():
            one.result()
        arriving.cancel()
    print(json.dumps("there"), flush=True)
    await ended.wait()
    print(json.dumps(house.cut), flush=True)
    for each in ones:
        each.cancel()
    await asyncio.gather(*ones, return_exceptions=True)


class Guests:
    """The connections of a house, seen from the test."""

    def __init__(self) -> None:
        self.cut = 0
        """The number of connections that the gateway closed. Set after the block has ended."""


@contextmanager
def full_of(gateway: Gateway, role: Role, count: int, queue: str = "noisy") -> Iterator[Guests]:
    """Yield once this many connections, in a separate process, are all open. Close them after the block."""
    rule = gateway.root
    given = {"role": role, "count": count, "port": gateway.amqp_port, "queue": queue}
    given |= {"rule": rule.name, "key": rule.primary_key}
    words = [sys.executable, "-m", "tests.abuse.house", json.dumps(given)]
    found = Guests()
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as house:
        assert house.stdin is not None
        assert house.stdout is not None
        try:
            assert house.stdout.readline() == '"there"\n', f"{count} connections with the role '{role}' did not open"
            yield found
            house.stdin.close()
            found.cut = json.loads(house.stdout.readline())
            assert house.wait(60) == 0
        finally:
            house.kill()


if __name__ == "__main__":
    allow_descriptors()
    asyncio.run(_play(json.loads(sys.argv[1])))
