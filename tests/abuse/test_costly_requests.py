"""Requests that cost much work or never end: rules, peeks, templates, incomplete requests, floods. One gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest

from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Attach, Disposition, Flow, Target
from oncebus.broker.clock import wall_time
from oncebus.model.access import Right, make_token
from oncebus.model.filters.budget import MOST_STEPS_OF_A_RULE
from oncebus.protocols.portal.links import link
from oncebus.values.durations import HOUR
from tests.amqp.client import sender, transfer, written
from tests.programs.serve.clients import BATCH
from tests.programs.serve.programs import until
from tests.protocols.portal.visitor import Visitor
from tests.protocols.templates.test_template_costs import TOO_MUCH, attacks
from tests.protocols.templates.test_template_front import DEPLOYMENT, asked

from .attackers import attacker, crowd
from .gateways import Gateway, running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

DESCRIPTORS = 1024
"""With this few descriptors there are about 170 places for HTTP, so a small crowd takes them all."""
COSTLY: dict[str, object] = {
    "type": "subscription",
    "topic": "costly",
    "name": "all",
    "rules": [{"name": "like", "sqlFilter": " OR ".join(["a LIKE b"] * 80)}],
}
ENTITIES: list[dict[str, object]] = [{"type": "topic", "name": "costly"}, COSTLY, {"type": "queue", "name": "nested"}]
DEAD = "/costly/Subscriptions/all/$DeadLetterQueue/$messages?count=100"
PATIENCE = 120.0

MUCH = [pytest.param(1, id="once"), pytest.param(10, id="much", marks=pytest.mark.torture)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Yield one gateway for all attacks here, because its start takes longer than they do."""
    with running_gateway(tmp_path_factory.mktemp("gateway"), entities=ENTITIES, descriptors=DESCRIPTORS) as running:
        yield running


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client. Requests with the header `authorized` have the rights of the root key."""
    # No keep-alive: by the next request, the gateway may have given the connection's place to another one.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=PATIENCE, limits=limits) as client:
        yield client


def authorized(gateway: Gateway) -> dict[str, str]:
    """Return the header of a client with all rights."""
    token = make_token(gateway.url, gateway.root.name, gateway.root.primary_key, wall_time() + HOUR)
    return {"Authorization": token}


def nested(size: int) -> bytes:
    """Return a message whose body is a list in which each byte is an empty list."""
    return b"\x00\x53\x77\xd0" + (size + 4).to_bytes(4) + size.to_bytes(4) + b"\x45" * size


async def send_nested(gateway: Gateway, sizes: list[int]) -> None:
    """Send such messages to the queue `nested`, with a key that may only send."""
    async with attacker(gateway, gateway.rule("sends-nested", Right.SEND)) as socket:
        await socket.say(written(sender(target=Target("nested"))))
        await socket.expect(Attach)
        for number, size in enumerate(sizes):
            payload, tag = nested(size), number.to_bytes(4)
            pieces = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)]
            for at, piece in enumerate(pieces, start=1):
                await socket.say(written(transfer(number, delivery_tag=tag, more=at < len(pieces)), piece))
            while not isinstance(answer := (await socket.frame()).performative, Disposition):
                assert isinstance(answer, Flow), answer
            assert isinstance(answer.state, Accepted), answer


@pytest.mark.parametrize("times", MUCH)
def test_costly_rules_delay_no_other_delivery(gateway: Gateway, times: int) -> None:
    """The message provides both value and pattern, and one rule compares them 80 times."""
    item = {"Body": "", "UserProperties": {"a": "a" * 100_000, "b": "%" + "a_" * 400 + "b%"}}
    count = 20 * times
    with victim(gateway) as somebody:
        watch = MemoryWatch(gateway.pid)

        def dead_letters() -> list[dict[str, Any]]:
            status, _, text = gateway.http.request("GET", DEAD)
            assert status == 200, text
            found: list[dict[str, Any]] = json.loads(text)["messages"]
            return found

        before = gateway.http.metric("messages_new_total", entity="costly")
        for _ in range(count // 2):
            batch = json.dumps([item] * 2)
            status, _, text = gateway.http.request("POST", "/costly/messages", batch, {"Content-Type": BATCH})
            assert status == 201, text
        somebody.goes_on()

        def is_done() -> bool:
            return gateway.http.metric("messages_new_total", entity="costly") >= before + count

        until(is_done, f"{count} costly messages were routed", limit=PATIENCE)
        # Each rule was tried, and failed like any filter that cannot be evaluated.
        letter = str(dead_letters()[0])
        assert f"needs more than {MOST_STEPS_OF_A_RULE:,} steps" in letter, letter[-2000:]
        watch.stays_below(100 * MEGABYTE, f"{count} messages under costly rules")


@pytest.mark.parametrize("times", MUCH)
def test_peeking_at_nested_messages_delays_nobody(gateway: Gateway, times: int) -> None:
    with victim(gateway) as somebody, victim(gateway, "http", queue="noisy") as other:
        # Some are just small enough to be decoded; the others are shown as bytes.
        asyncio.run(send_nested(gateway, [60_000] * 8 + [255_000] * 30))
        watch = MemoryWatch(gateway.pid)
        head = authorized(gateway)

        async def peek() -> None:
            start: int | None = 0
            seen = 0
            async with client_of(gateway) as client:
                while start is not None:
                    answer = await client.get(f"/nested/$messages?count=100&from={start}", headers=head)
                    assert answer.status_code == 200, answer.text
                    page = answer.json()
                    start, seen = page["next"], seen + len(page["messages"])
            assert seen >= 38

        async def visit() -> None:
            async with client_of(gateway) as client:
                visitor = Visitor(cast(Any, None), client)
                await visitor.sign_in(gateway.root)
                for start in (0, 20):
                    page = await client.get(link("entity/messages", path="nested", **{"from": start, "show": 20}))
                    assert page.status_code == 200, page.text
                    assert "Body that is too large to be read here" in page.text

        async def attack() -> None:
            looking = [asyncio.create_task(look()) for look in (peek, visit) for _ in range(3 * times)]
            await asyncio.to_thread(somebody.goes_on)
            await asyncio.to_thread(other.goes_on)
            await asyncio.gather(*looking)

        asyncio.run(attack())
        watch.stays_below(150 * MEGABYTE, f"{6 * times} looks at 38 nested messages")


@pytest.mark.parametrize("times", MUCH)
def test_costly_templates_delay_nobody(gateway: Gateway, times: int) -> None:
    with victim(gateway) as somebody, victim(gateway, "http", queue="noisy") as other:
        watch = MemoryWatch(gateway.pid)
        head = authorized(gateway)

        async def deploy(content: dict[str, Any]) -> None:
            async with client_of(gateway) as client:
                for _ in range(times):
                    answer = await client.put(f"{DEPLOYMENT}?api-version=2024-03-01", headers=head, json=asked(content))
                    assert (answer.status_code, TOO_MUCH in answer.text) == (400, True), answer.text

        async def attack() -> None:
            deploying = [asyncio.create_task(deploy(content)) for content in attacks().values()]
            await asyncio.to_thread(somebody.goes_on)
            await asyncio.to_thread(other.goes_on)
            await asyncio.gather(*deploying)

        asyncio.run(attack())
        watch.stays_below(150 * MEGABYTE, f"{times} times {len(attacks())} costly templates")


HALVES = {
    "head": b"POST /noisy/messages HTTP/1.1\r\nHost: localhost\r\nContent-",
    "body": b"POST /noisy/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
    "sign-in": f"POST {link('sign-in')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\n\r\nrule=RootManage".encode(),
}
"""The data that strangers send before they fall silent."""


@pytest.mark.parametrize(
    "count", [pytest.param(300, id="300"), pytest.param(5000, id="5000", marks=pytest.mark.torture)]
)
def test_half_requests_of_strangers_take_no_place_from_others(gateway: Gateway, count: int) -> None:
    with (
        victim(gateway) as somebody,
        victim(gateway, "http", queue="noisy") as other,
        crowd() as strangers,
    ):
        watch = MemoryWatch(gateway.pid)

        async def attack() -> None:
            for first in HALVES.values():
                await strangers.connect(gateway.http_port, count, first)
                strangers.forget_closed()

        for _ in range(2):
            asyncio.run(attack())
            print(f"{strangers.alive} of {len(HALVES) * count} half requests are open")
            other.goes_on()
        somebody.goes_on()
        watch.stays_below(60 * MEGABYTE, f"{2 * len(HALVES) * count} half requests")


PILES = {
    "requests": (b"", b"GET / HTTP/1.1\r\n\r\n"),
    "headers": (b"GET / HTTP/1.1\r\n", b"ab:cd\r\n"),
    "trailers": (b"POST /noisy/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"ab:cd\r\n"),
}
"""The data that strangers send first, and then repeatedly. They read no answer."""


@pytest.mark.parametrize("what", PILES)
@pytest.mark.parametrize("count", [pytest.param(20, id="20"), pytest.param(2000, id="2000", marks=pytest.mark.torture)])
def test_floods_of_small_requests_take_little_memory(gateway: Gateway, what: str, count: int) -> None:
    """Without limits, each of these would take a hundred times its size in memory."""
    first, again = PILES[what]
    with victim(gateway) as somebody, crowd() as strangers:
        watch = MemoryWatch(gateway.pid)
        asyncio.run(strangers.connect(gateway.http_port, count, first + again * (200_000 // len(again))))
        somebody.goes_on()
        watch.stays_below(60 * MEGABYTE, f"{count} piles of {what}")
