"""Attaches that are refused, or that contain large unused lists: one byte of them decodes to 64."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from oncebus.amqp.limits import MOST_FRAME_ELEMENTS, UNTRUSTED_FRAME_ELEMENTS
from oncebus.amqp.performatives import Source, Target
from oncebus.amqp.types import Symbol
from oncebus.model.access import AuthorizationRule, Right
from tests.amqp.client import BEGIN, receiver, sender, written
from tests.amqp.sockets import Socket

from .attackers import attacker
from .gateways import Gateway, running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

LIMIT = 60 * MEGABYTE
PER_SESSION = 200
ROOM = 500
"""The bytes of an attach besides the list in it."""


async def listen(socket: Socket) -> None:
    """Read the answers: the gateway disconnects a peer that does not."""
    with contextlib.suppress(OSError):
        while await socket.reader.read(65536):
            pass


async def attach_many(
    gateway: Gateway, rule: AuthorizationRule | None, links: int, junk: list[object], release: asyncio.Event
) -> None:
    """Attach this many links, each with such a list in its properties, and stay connected."""
    async with attacker(gateway, rule) as socket:
        listening = asyncio.create_task(listen(socket))
        with contextlib.suppress(OSError):
            for number in range(links):
                channel, handle = divmod(number, PER_SESSION)
                if handle == 0 and channel:
                    await socket.say(written(BEGIN, channel=channel))
                fields = {"properties": {Symbol("junk"): junk}}
                if rule is None:
                    attach = receiver(f"r{number}", handle, source=Source("noisy"), **fields)
                else:
                    attach = sender(f"s{number}", handle, target=Target("noisy"), **fields)
                await socket.say(written(attach, channel=channel))
        await release.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.parametrize(
    ("is_known", "is_within"),
    [
        pytest.param(False, False, id="stranger-too-many-elements"),
        pytest.param(False, True, id="stranger-few-elements", marks=pytest.mark.release),
        pytest.param(True, False, id="only-sends-too-many-elements", marks=pytest.mark.release),
        pytest.param(True, True, id="only-sends-few-elements"),
    ],
)
@pytest.mark.parametrize("times", [pytest.param(1, id="once"), pytest.param(10, id="much", marks=pytest.mark.torture)])
def test_attaches_take_little_memory(tmp_path: Path, is_known: bool, is_within: bool, times: int) -> None:
    with running_gateway(tmp_path) as gateway, victim(gateway) as somebody:
        rule = gateway.rule("only-sends", Right.SEND) if is_known else None
        # Unauthenticated peers send frames of 16 KB, one client sends frames of 64 KB.
        peers, links, size = (1, 45 * times, 65000) if is_known else (4 * times, 45, 16000)
        elements = (MOST_FRAME_ELEMENTS if is_known else UNTRUSTED_FRAME_ELEMENTS) - 100 if is_within else size - ROOM
        junk: list[object] = [*[[]] * elements, "x" * (size - ROOM - elements)]
        watch = MemoryWatch(gateway.pid)

        async def attack() -> None:
            release = asyncio.Event()
            attacking = [asyncio.create_task(attach_many(gateway, rule, links, junk, release)) for _ in range(peers)]
            await asyncio.to_thread(somebody.goes_on)
            release.set()
            await asyncio.gather(*attacking)

        asyncio.run(attack())
        somebody.goes_on()
        sent = peers * links * size / MEGABYTE
        watch.stays_below(LIMIT, f"{peers * links} attaches of {sent:.0f} MB together")
