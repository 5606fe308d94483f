"""amqp_timed.py one COUNT PAUSE, or rate RATE SECONDS: when messages were sent, accepted and received, over AMQP.

`one` sends a message at a time and waits PAUSE seconds between them, in which the broker is idle. `rate` sends RATE
messages a second for SECONDS. The queue that SERVICEBUS_CONNECTION_STRING and QUEUE name must be empty: it is in order,
so the first message that arrives is the first that was sent. Prints a line of JSON with three lists of seconds on the
monotonic clock: `sent`, `accepted` and `arrived`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable

from bench.amqp_load import FAREWELL, IS_SETTLED, PARTS, Parcel, Receiver, Sender
from oncebus.amqp.fastread import DispositionFields

PATIENCE = 60.0
CREDIT = 2000
TICK = 0.001


class TimedSender(Sender):
    """Sends when asked to."""

    def __init__(self) -> None:
        super().__init__(1, Parcel(1), 0, float("inf"), lambda _: None)
        self.sent: list[float] = []
        self.accepted: list[float] = []
        self._wanted = 0

    def send(self, count: int) -> None:
        now = time.monotonic()
        self.sent += [now] * count
        self._wanted += count
        self.go_on()

    def go_on(self) -> None:
        # As `Sender` does it, but no more than is wanted.
        self._most = self.under_way + self._wanted
        before = self.under_way
        if self._wanted:
            super().go_on()
        self._wanted -= self.under_way - before

    def on_disposition(self, fields: DispositionFields) -> None:
        self.accepted += [time.monotonic()] * (fields[2] - fields[1] + 1)
        super().on_disposition(fields)


class TimedReceiver(Receiver):
    """Completes what comes, and knows when it came."""

    def __init__(self) -> None:
        super().__init__(CREDIT, float("inf"), self._count)
        self.arrived: list[float] = []
        self.completed = 0
        self.on_completed: Callable[[], None] = lambda: None

    def on_transfer(self, delivery: int | None) -> None:
        self.arrived.append(time.monotonic())
        super().on_transfer(delivery)

    def _count(self, count: int) -> None:
        self.completed += count
        self.on_completed()


async def one_by_one(sender: TimedSender, receiver: TimedReceiver, count: int, pause: float) -> None:
    for number in range(count):
        done = asyncio.Event()
        receiver.on_completed = done.set
        sender.send(1)
        async with asyncio.timeout(PATIENCE):
            while receiver.completed <= number:
                await done.wait()
                done.clear()
        await asyncio.sleep(pause)


async def at_a_rate(sender: TimedSender, receiver: TimedReceiver, rate: float, seconds: float) -> None:
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        if (count := int(passed * rate) - len(sender.sent)) > 0:
            sender.send(count)
        await asyncio.sleep(TICK)
    async with asyncio.timeout(PATIENCE):
        while receiver.completed < len(sender.sent):
            await asyncio.sleep(TICK)


async def run(kind: str, first: float, second: float) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = PARTS["Endpoint"].removeprefix("sb://").rpartition(":")
    _, receiver = await loop.create_connection(TimedReceiver, host, int(port))
    _, sender = await loop.create_connection(TimedSender, host, int(port))
    # Until both have attached.
    await asyncio.sleep(0.5)
    gc.disable()
    if kind == "one":
        await one_by_one(sender, receiver, int(first), second)
    else:
        await at_a_rate(sender, receiver, first, second)
    if IS_SETTLED:
        await asyncio.sleep(FAREWELL)
    print(json.dumps({"sent": sender.sent, "accepted": sender.accepted, "arrived": receiver.arrived}))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
