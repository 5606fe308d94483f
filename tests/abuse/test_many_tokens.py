"""Very many tokens and very many links: the end of one token must not cost the product of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.amqp.head import Properties
from oncebus.amqp.message import AmqpValue
from oncebus.amqp.performatives import Attach, Detach, Source, Target, Transfer
from oncebus.broker.clock import wall_time
from oncebus.model.access import Right, make_token
from oncebus.values.durations import HOUR, SECOND
from tests.amqp.client import BEGIN, credit, receiver, sender, transfer, written
from tests.amqp.sockets import Socket

from .attackers import attacker
from .gateways import running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

LIMIT = 150 * MEGABYTE
PER_SESSION = 200
AT_ONCE = 40
SECONDS = 20


class Heard:
    """Counts the frames of each kind that have arrived on a connection."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._counts: Counter[type] = Counter()
        self.conditions: set[str] = set()

    async def until(self, kind: type, count: int) -> None:
        """Read until this many frames of a kind have arrived in total."""
        while self._counts[kind] < count:
            found = (await self._socket.frame()).performative
            self._counts[type(found)] += 1
            if isinstance(found, Detach):
                assert found.error is not None
                self.conditions.add(found.error.condition)


@pytest.mark.parametrize(
    ("tokens", "links"),
    [pytest.param(50, 100, id="few"), pytest.param(999, 1900, id="many", marks=pytest.mark.torture)],
)
def test_the_end_of_a_token_takes_no_time_from_others(tmp_path: Path, tokens: int, links: int) -> None:
    with running_gateway(tmp_path) as gateway, victim(gateway) as somebody:
        rule = gateway.rule("only-listens", Right.LISTEN)
        watch = MemoryWatch(gateway.pid)

        def put(number: int, resource: str, end: int) -> bytes:
            token = make_token(f"sb://localhost/{resource}", rule.name, rule.primary_key, end)
            body = amqp.encode_message(Properties(message_id="m"), {"operation": "put-token"}, AmqpValue(token))
            return written(transfer(number, delivery_tag=number.to_bytes(4)), b"".join(body))

        async def attack() -> None:
            async with attacker(gateway) as socket:
                heard = Heard(socket)
                await socket.say(
                    written(sender(target=Target("$cbs"))),
                    written(receiver("r", 1, source=Source("$cbs"))),
                    written(credit(2 * tokens, 1)),
                )
                await heard.until(Attach, 2)
                # The tokens for other paths stay. The one for the queue ends, and all links with it.
                await socket.say(put(0, "noisy", wall_time() + SECONDS * SECOND))
                await heard.until(Transfer, 1)
                for first in range(1, tokens, AT_ONCE):
                    numbers = range(first, min(first + AT_ONCE, tokens))
                    await socket.say(*(put(number, f"other-{number}", wall_time() + HOUR) for number in numbers))
                    await heard.until(Transfer, numbers[-1] + 1)
                for first in range(0, links, PER_SESSION):
                    channel, numbers = first // PER_SESSION + 1, range(first, min(first + PER_SESSION, links))
                    attaches = [receiver(f"n{each}", each - first, source=Source("noisy")) for each in numbers]
                    await socket.say(
                        written(BEGIN, channel=channel), *(written(each, channel=channel) for each in attaches)
                    )
                    await heard.until(Attach, 2 + numbers[-1] + 1)
                await heard.until(Detach, links)
                assert heard.conditions == {"amqp:unauthorized-access"}

        asyncio.run(attack())
        somebody.goes_on()
        watch.stays_below(LIMIT, f"{tokens} tokens and {links} links")
