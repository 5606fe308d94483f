"""`python -m abuse.flood JSON`: connections that send small legal AMQP frames all the time, until standard input ends.

See `abuse.floods`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import threading
from typing import Any

from oncebus.amqp.frames import HEARTBEAT
from oncebus.amqp.outcomes import ReceivedState
from oncebus.amqp.performatives import Detach, Disposition, End, Source
from tests.abuse.attackers import amqp_connection
from tests.amqp.client import BEGIN, credit, receiver, written

CHUNK = 256 * 1024
REFUSED = written(receiver(source=Source("nowhere"))) + written(Detach(handle=0, closed=True))
FRAMES = {
    "begin-end": written(BEGIN, channel=1) + written(End(), channel=1),
    "refused-attach": REFUSED,
    "empty": HEARTBEAT,
    "flow": written(credit(0, None, echo=True)),
    "disposition": written(Disposition(role=True, first=0, last=2**31 - 1, settled=False, state=ReceivedState(0, 0))),
}
"""What each kind of flood repeats, in a session that has begun."""


async def flood(given: dict[str, Any], context: ssl.SSLContext | None, has_begun: asyncio.Event) -> None:
    """Send as fast as the gateway reads, and read its answers. Connect again whenever it closes the connection."""
    frames = FRAMES[given["kind"]]
    data = frames * (CHUNK // len(frames))
    rule = given["rule"]
    while True:
        with contextlib.suppress(OSError, EOFError, AssertionError):
            async with amqp_connection(given["port"], rule and tuple(rule), context) as socket:
                writer = socket.writer
                reading = asyncio.create_task(_discard(socket.reader))
                try:
                    while not reading.done() and not writer.transport.is_closing():
                        writer.write(data)
                        has_begun.set()
                        await writer.drain()
                        # With TLS, writing to a lost connection does not wait, and nobody would notice the loss.
                        await asyncio.sleep(0)
                finally:
                    reading.cancel()
        await asyncio.sleep(0)


async def _discard(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(CHUNK):
            pass


async def _play(given: dict[str, Any]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    context = None if given["certificate"] is None else ssl.create_default_context(cafile=given["certificate"])
    begun = [asyncio.Event() for _ in range(given["count"])]
    floods = [asyncio.create_task(flood(given, context, each)) for each in begun]
    for each in begun:
        await each.wait()
    print(json.dumps("there"), flush=True)
    await ended.wait()
    for one in floods:
        one.cancel()
    await asyncio.gather(*floods, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_play(json.loads(sys.argv[1])))
