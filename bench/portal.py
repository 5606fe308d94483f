"""Measures the pages of the portal with 2,000 queues, in the gateway's own process, without a network or a browser.

Prints the milliseconds of each page, wall clock and CPU of the whole process, as the median of some rounds. Run it
with `python -m bench.portal`.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.sending import Incoming
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import AuthorizationRule, Right, connection_string
from oncebus.model.entities import Catalogue, Queue
from oncebus.pipeline.driver import LocalDriver
from oncebus.programs.serve.app import make_app

QUEUES = 2_000
BUSY = 500
MESSAGES = 4_000
ROUNDS = 15
SHARDS = 2
KEY = AuthorizationRule("root", frozenset(Right), "bench-one", "bench-two")
PAGES = (
    "",
    "live",
    "?sort=backlog&order=descending",
    "?sort=rate&order=descending&range=24h",
    "?find=queue-19",
    "entity?path=queue-0000",
    "entity/messages?path=queue-0000",
    "entity/messages?path=queue-0000&show=7",
    "entity/messages?path=queue-0000&message-id=absent",
    "entity/duplicates?path=queue-0000",
    "duplicates",
    "search?message-id=absent",
    "pipeline",
    "create?kind=queue",
)


def _message(identity: str) -> Incoming:
    head, body = amqp.encode_message(amqp.Properties(message_id=identity), {}, b'{"item": "teapot"}')
    return Incoming(head, body, identity)


async def _fill(broker: Broker, folders: Folders) -> None:
    def create(catalogue: Catalogue, now: int) -> Catalogue:
        for number in range(QUEUES):
            queue = Queue(name=f"queue-{number:04}", requires_duplicate_detection=True)
            catalogue = catalogue.create(queue, now)
        return catalogue

    await broker.change(create)
    await broker.send("queue-0000", [_message(f"{number % (MESSAGES - 500)}") for number in range(MESSAGES)])
    for number in range(BUSY):
        await broker.send(f"queue-{4 * number:04}", [_message("a"), _message("b"), _message("a")])
    await asyncio.to_thread(LocalDriver(folders, shards=SHARDS).step)
    await broker.counts("queue-0000")
    await broker.receive(Address("queue-0000"), 10)


async def main() -> None:
    """Measure all pages and print them."""
    with tempfile.TemporaryDirectory() as data:
        folders = Folders(Path(data))
        broker = await Broker.open(Engine.files(folders, SHARDS), read_your_sends=60)
        broker.start()
        try:
            await _fill(broker, folders)
            app = make_app(broker, namespace_rules=lambda: (KEY,))
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost:5300/$portal/"
            ) as client:
                await _measure(client)
        finally:
            await broker.close()


async def _measure(client: httpx.AsyncClient) -> None:
    form = await client.get("sign-in")
    [seal, *_] = re.findall(r'name="seal" value="([0-9a-f]{64})"', form.text)
    text = connection_string("localhost", None, KEY, emulator=True)
    await client.post("sign-in", data={"seal": seal, "connection-string": text})
    print(f"{'page':<52}{'median ms':>10}{'slowest':>10}{'CPU ms':>10}{'KB':>8}")
    for page in PAGES:
        walls, cpus = [], []
        for _ in range(ROUNDS):
            began, used = time.perf_counter(), time.process_time()
            answer = await client.get(page)
            walls.append(1e3 * (time.perf_counter() - began))
            cpus.append(1e3 * (time.process_time() - used))
            assert answer.status_code == 200, answer.text
        middle, cpu = statistics.median(walls), statistics.median(cpus)
        size = len(answer.content) / 1024
        print(f"{page or '(overview)':<52}{middle:>10.1f}{max(walls):>10.1f}{cpu:>10.1f}{size:>8.0f}")


if __name__ == "__main__":
    asyncio.run(main())
