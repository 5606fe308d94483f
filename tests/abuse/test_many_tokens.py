"""Very many tokens times very many links: an end of one of them must not cost their product."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amqp.client import BEGIN, credit, receiver, sender, transfer, written
from amqp.sockets import Socket
from oncebus import amqp
from oncebus.access import Right, make_token
from oncebus.amqp import AmqpValue, Properties
from oncebus.amqp.performatives import Attach, Detach, Source, Target, Transfer
from oncebus.broker.clock import wall_time
from oncebus.durations import HOUR, SECOND

from .attackers import attacker
from .gateways import running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

LIMIT = 150 * MEGABYTE
PER_SESSION = 200
SECONDS = 20


async def next_of(socket: Socket, kind: type) -> object:
    """The next frame of a kind."""
    while True:
        found = (await socket.frame()).performative
        if isinstance(found, kind):
            return found


@pytest.mark.parametrize(
    ("tokens", "links"),
    [pytest.param(50, 100, id="few"), pytest.param(999, 1900, id="many", marks=pytest.mark.torture)],
)
def test_the_end_of_a_token_takes_no_time_from_others(tmp_path: Path, tokens: int, links: int) -> None:
    with running_gateway(tmp_path) as gateway, victim(gateway) as somebody:
        rule = gateway.rule("only-listens", Right.LISTEN)
        watch = MemoryWatch(gateway.pid)

        async def put(socket: Socket, number: int, resource: str, end: int) -> None:
            token = make_token(f"sb://localhost/{resource}", rule.name, rule.primary_key, end)
            body = amqp.encode_message(Properties(message_id="m"), {"operation": "put-token"}, AmqpValue(token))
            await socket.say(written(transfer(number, delivery_tag=number.to_bytes(4)), b"".join(body)))
            await next_of(socket, Transfer)

        async def attack() -> None:
            async with attacker(gateway) as socket:
                await socket.say(
                    written(sender(target=Target("$cbs"))),
                    written(receiver("r", 1, source=Source("$cbs"))),
                    written(credit(2 * tokens, 1)),
                )
                # Those for other places stay; that for the queue ends, and with it all links.
                end = wall_time() + SECONDS * SECOND
                await put(socket, 0, "noisy", end)
                for number in range(1, tokens):
                    await put(socket, number, f"other-{number}", wall_time() + HOUR)
                for number in range(links):
                    channel, handle = divmod(number, PER_SESSION)
                    if handle == 0:
                        await socket.say(written(BEGIN, channel=channel + 1))
                    attach = receiver(f"n{number}", handle, source=Source("noisy"))
                    await socket.say(written(attach, channel=channel + 1))
                    await next_of(socket, Attach)
                for _ in range(links):
                    detach = await next_of(socket, Detach)
                    assert isinstance(detach, Detach)
                    assert detach.error is not None
                    assert detach.error.condition == "amqp:unauthorized-access"

        asyncio.run(attack())
        somebody.goes_on()
        watch.stays_below(LIMIT, f"{tokens} tokens and {links} links")
