"""`python -m abuse.victim JSON`: one client of a gateway, until standard input ends. See `abuse.victims`."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

from oncebus import amqp
from oncebus.amqp.head import Properties
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Attach, Close, Disposition, Source, Target, Transfer
from oncebus.model.access import KeyFile
from tests.abuse.attackers import amqp_connection
from tests.amqp.client import credit, receiver, sender, transfer, written
from tests.amqp.sockets import Socket
from tests.programs.serve.clients import Client

PATIENCE = 60.0
ROUNDS = 5
"""The number of rounds on one connection."""


class AmqpVictim:
    """A connection with a sender and a receiver on the same queue."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._sent = 0

    async def attach(self, queue: str) -> None:
        """Attach both links."""
        await self._socket.say(
            written(sender(target=Target(queue))),
            written(receiver("r", 1, source=Source(queue))),
            written(credit(10 * ROUNDS, 1)),
        )
        for _ in range(2):
            answer = await self._next(Attach)
            assert (answer.source if answer.role is False else answer.target) is not None, "a link was refused"

    async def round(self, content: bytes) -> float:
        """Send a message, receive it and settle it. Return the seconds until the send was accepted."""
        began, accepted = time.monotonic(), 0.0
        payload = b"".join(amqp.encode_message(Properties(), None, content))
        await self._socket.say(written(transfer(self._sent, delivery_tag=self._sent.to_bytes(4)), payload))
        self._sent += 1
        is_accepted = False
        received: tuple[Transfer, bytes] | None = None
        while not is_accepted or received is None:
            frame = await self._socket.frame()
            if isinstance(frame.performative, Disposition):
                assert isinstance(frame.performative.state, Accepted), frame.performative
                is_accepted, accepted = True, time.monotonic() - began
            elif isinstance(frame.performative, Transfer):
                assert frame.payload.endswith(payload), "another message came"
                received = frame.performative, frame.payload
            else:
                assert type(frame.performative).__name__ == "Flow", frame.performative
        delivery_id = received[0].delivery_id
        assert delivery_id is not None
        await self._socket.say(written(Disposition(role=True, first=delivery_id, settled=True, state=Accepted())))
        return accepted

    async def close(self) -> None:
        """Close the connection and wait for the answer: then all settlements are done."""
        await self._socket.say(written(Close()))
        await self._next(Close)

    async def _next(self, kind: type) -> Any:
        while True:
            found = (await self._socket.frame()).performative
            if isinstance(found, kind):
                return found
            assert type(found).__name__ == "Flow", found


async def amqp_rounds(given: dict[str, Any], rule: tuple[str, str], ended: threading.Event) -> None:
    """Do rounds over AMQP until the event is set."""
    context = None if given["certificate"] is None else ssl.create_default_context(cafile=given["certificate"])
    number = 0
    while not ended.is_set():
        began = time.monotonic()
        async with amqp_connection(given["port"], rule, context) as socket:
            client = AmqpVictim(socket)
            await client.attach(given["queue"])
            for _ in range(ROUNDS):
                send = await client.round(str(number).encode())
                number += 1
                tell([time.monotonic() - began, send])
                began = time.monotonic()
            await client.close()


def tell(what: list[float] | str) -> None:
    """Write one line for the test: the seconds of a round and of its send, or the reason why the victim stopped."""
    print(json.dumps(what), flush=True)


def http_rounds(given: dict[str, Any], ended: threading.Event) -> None:
    """Do rounds over HTTP, each request on a new connection."""
    client, number = Client(given["url"], Path(given["data"])), 0
    while not ended.is_set():
        began = time.monotonic()
        status = client.send(given["queue"], f"victim-{number}", str(number))
        assert status == 201, f"a send was answered with {status}"
        send = time.monotonic() - began
        found = client.receive(given["queue"], PATIENCE)
        assert found == (f"victim-{number}", str(number)), f"{found} came instead of {number}"
        number += 1
        tell([time.monotonic() - began, send])


def health_rounds(given: dict[str, Any], ended: threading.Event) -> None:
    """Ask whether the gateway lives, as a monitor does: without a token, each time on a new connection."""
    client = Client(given["url"], Path(given["data"]))
    while not ended.is_set():
        began = time.monotonic()
        status, _, _ = client.exchange("GET", "/health/live", signed=False)
        assert status == 200, f"/health/live was answered with {status}"
        took = time.monotonic() - began
        tell([took, took])
        ended.wait(0.01)


def main() -> int:
    given, ended = json.loads(sys.argv[1]), threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    rule = KeyFile(Path(given["data"]) / "keys.json").rules()[0]
    try:
        if given["protocol"] == "http":
            http_rounds(given, ended)
        elif given["protocol"] == "health":
            health_rounds(given, ended)
        else:
            asyncio.run(amqp_rounds(given, (rule.name, rule.primary_key), ended))
    except Exception as error:
        tell(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
