"""Attacks over HTTP on work and places, not on bytes: very many values, waiting receives, costly rules. One gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from oncebus.broker.clock import wall_time
from oncebus.model.access import Right, make_token
from oncebus.values.durations import HOUR
from tests.programs.serve.clients import BATCH
from tests.programs.serve.programs import until

from .attackers import allow_descriptors
from .gateways import Gateway, running_gateway
from .memory import MEGABYTE, MemoryWatch
from .victims import victim

DESCRIPTORS = 1024
"""With this few descriptors there are about 170 places for HTTP, so a small crowd takes them all."""
RULES = 40
COSTLY: list[dict[str, object]] = [
    {"type": "topic", "name": "costly"},
    {
        "type": "subscription",
        "topic": "costly",
        "name": "all",
        "rules": [{"name": f"like{at}", "sqlFilter": f"a LIKE b OR n = {at}"} for at in range(RULES)],
    },
]
PATIENCE = 120.0
SLOW = "%" + "a_" * 400 + "b%"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Yield one gateway for all attacks here, because its start takes longer than they do."""
    allow_descriptors()
    with running_gateway(tmp_path_factory.mktemp("gateway"), entities=COSTLY, descriptors=DESCRIPTORS) as running:
        yield running


def signed(gateway: Gateway, name: str, *rights: Right) -> dict[str, str]:
    """Return the header of a client with a key of its own."""
    rule = gateway.rule(name, *rights)
    return {"Authorization": make_token(gateway.url, rule.name, rule.primary_key, wall_time() + HOUR)}


@contextlib.asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=PATIENCE, limits=limits) as client:
        yield client


@pytest.mark.parametrize("count", [pytest.param(1, id="once"), pytest.param(10, id="much", marks=pytest.mark.torture)])
def test_batches_of_very_many_values_are_refused_before_they_cost_anything(gateway: Gateway, count: int) -> None:
    properties = ",".join(f'"p{at}":1' for at in range(600_000))
    body = f'[{{"Body":"","UserProperties":{{{properties}}}}}]'.encode()
    headers = {**signed(gateway, "sends", Right.SEND), "Content-Type": BATCH}

    async def attack() -> list[httpx.Response]:
        async with client_of(gateway) as client:
            return await asyncio.gather(
                *(client.post("/noisy/messages", content=body, headers=headers) for _ in range(count))
            )

    with victim(gateway) as somebody, victim(gateway, "health") as monitor:
        watch = MemoryWatch(gateway.pid)
        answers = asyncio.run(attack())
        somebody.goes_on()
        monitor.goes_on()
        assert {each.status_code for each in answers} == {413}, answers[0].text
        watch.stays_below(60 * MEGABYTE, f"{count} batches of 600,000 properties")


@pytest.mark.parametrize(
    "count", [pytest.param(300, id="300"), pytest.param(2500, id="2500", marks=pytest.mark.torture)]
)
def test_waiting_receives_give_way_to_everybody_else(gateway: Gateway, count: int) -> None:
    headers = signed(gateway, "listens", Right.LISTEN)

    async def receive(client: httpx.AsyncClient) -> int:
        while True:
            # A connection that is slow to speak may be closed for another one.
            with contextlib.suppress(httpx.TransportError):
                return (await client.post("/noisy/messages/head?timeout=60", headers=headers)).status_code

    async def attack() -> list[int]:
        async with client_of(gateway) as client:
            waiting = [asyncio.create_task(receive(client)) for _ in range(count)]
            while not any(each.done() for each in waiting):
                await asyncio.sleep(0.05)
            # All places are taken, so that the first one has given way. An operator, a monitor and other clients get
            # their answers.
            for path in ("/metrics", "/$Resources/queues?api-version=2021-05", "/quiet/$messages"):
                status, _, text = await asyncio.to_thread(gateway.http.request, "GET", path)
                assert status == 200, text
            for who in (monitor, other):
                await asyncio.to_thread(who.goes_on)
            done = [each.result() for each in waiting if each.done()]
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return done

    with victim(gateway, "health") as monitor, victim(gateway, "http") as other:
        assert set(asyncio.run(attack())) == {204}


@pytest.mark.parametrize("count", [pytest.param(40, id="40"), pytest.param(1000, id="1000", marks=pytest.mark.torture)])
def test_rules_just_below_their_budget_delay_no_other_queue(gateway: Gateway, count: int) -> None:
    """The message provides both value and pattern, about 5 KB."""
    item = {"Body": "", "UserProperties": {"a": "a" * 4400, "b": SLOW}}
    headers = {**signed(gateway, "sends", Right.SEND), "Content-Type": BATCH}
    body = json.dumps([item] * 20).encode()

    async def attack() -> list[int]:
        async with client_of(gateway) as client:
            sending = [client.post("/costly/messages", content=body, headers=headers) for _ in range(count // 20)]
            return [each.status_code for each in await asyncio.gather(*sending)]

    with victim(gateway) as somebody:
        before = gateway.http.metric("messages_new_total", entity="costly")
        statuses = asyncio.run(attack())
        somebody.goes_on()
        # A busy topic's own senders have to wait, and some are refused.
        assert set(statuses) <= {201, 503}
        accepted = 20 * statuses.count(201)
        assert accepted

        def is_done() -> bool:
            return gateway.http.metric("messages_new_total", entity="costly") >= before + accepted

        until(is_done, f"{accepted} costly messages were routed", limit=PATIENCE)
        print(f"{accepted} of {count} costly messages were accepted")
