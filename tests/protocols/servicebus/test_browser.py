"""Links that only look at messages, frame by frame."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from oncebus import amqp
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Attach, Detach, Disposition, Flow, Source, Transfer
from oncebus.amqp.types import Symbol, Timestamp
from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Settlement
from oncebus.model.entities import Catalogue, Subscription, Topic
from oncebus.protocols.servicebus.messages import SCHEDULED_TIME, incoming_message, timestamp
from oncebus.values.durations import HOUR
from tests.amqp.client import credit

from .frames import Manager
from .raw import RawClient, Stage, message, of, play, to


def browser(address: str = "orders") -> Attach:
    return of(address, source=Source(address, distribution_mode=Symbol("copy")))


async def put(stage: Stage, *bodies: bytes) -> None:
    await stage.broker.send("orders", [incoming_message(message(body)) for body in bodies])
    await stage.broker.counts("orders")


async def browsed(client: RawClient, count: int, before: int = 0) -> list[object]:
    """Drain `count` credits after as many `before`, and return the bodies that came before the answer."""
    client.do(credit(count, delivery_count=before, drain=True))
    found: list[object] = []
    while True:
        frame, payload = await client.next(object)
        if isinstance(frame, Flow):
            assert (frame.link_credit, frame.drain) == (0, True)
            return found
        assert isinstance(frame, Transfer)
        assert frame.settled
        parts = amqp.split(payload)
        assert "x-opt-lock-token" not in (parts.annotations or {})
        found.append(amqp.decode_body(parts.body))


def test_a_browser_gets_copies_and_a_receiver_the_messages(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b", b"c")
        client = stage.client()
        answer = await client.attached(browser())
        assert answer.snd_settle_mode == 1
        assert answer.source is not None
        assert answer.source.distribution_mode == "copy"
        assert await browsed(client, 2) == [b"a", b"b"]
        assert await browsed(client, 10, before=2) == [b"c"]
        await put(stage, b"d")
        assert await browsed(client, 10, before=12) == [b"d"]
        assert await browsed(client, 10, before=22) == []
        received = await stage.broker.receive(Address("orders"), 10)
        assert [(each.message.sequence, each.message.deliveries) for each in received] == [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 1),
        ]

    play(tmp_path, scenario)


def test_a_browser_with_credit_gets_what_is_there(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, *(str(number).encode() for number in range(50)))
        client = stage.client()
        await client.attached(browser(), given=100)
        found = await client.received(50)
        assert [amqp.decode_body(amqp.split(payload).body) for _, payload in found] == [
            str(number).encode() for number in range(50)
        ]

    play(tmp_path, scenario)


def test_a_browser_sees_locked_messages_but_no_deferred_or_scheduled_ones(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"locked", b"deferred")
        locked, deferred = await stage.broker.receive(Address("orders"), 2)
        assert locked.message.token is not None
        assert deferred.message.token is not None
        await stage.broker.settle(Address("orders"), [Settlement(Action.DEFER, deferred.message.token)])
        client = stage.client()
        await client.attached(to("orders", handle=1))
        later = {SCHEDULED_TIME: Timestamp(timestamp(stage.server.front.now() + HOUR))}
        client.transfer(b"".join(amqp.deliverable(b"", message(b"later"), amqp.Header(), later)), handle=1)
        await client.outcomes(1)
        await client.attached(browser())
        assert await browsed(client, 10) == [b"locked"]

    play(tmp_path, scenario)


def test_a_browser_and_management_see_what_their_client_has_settled_before(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b", b"c", b"d")
        client = stage.client()
        await client.attached(browser())
        await client.attached(of("orders", "settles", handle=1), given=10)
        ids = [transfer.delivery_id for transfer, _ in await client.received(4)]
        manager = await Manager.attached(client)

        async def complete(first: int | None, then: int | None) -> None:
            """Settle two deliveries without asking for an answer, the second while the first is being settled."""
            assert first is not None
            assert then is not None
            client.do(Disposition(role=True, first=first, settled=True, state=Accepted()))
            await asyncio.sleep(0)
            client.do(Disposition(role=True, first=then, settled=True, state=Accepted()))

        await complete(ids[0], ids[1])
        assert await browsed(client, 10) == [b"c", b"d"]
        await complete(ids[2], ids[3])
        assert await manager.ask("peek-message", {"from-sequence-number": 1, "message-count": 10}) == (204, {})

    play(tmp_path, scenario)


def test_a_browser_needs_the_right_to_listen_and_ends_with_its_queue(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stranger = stage.client(is_signed_in=False)
        condition, _ = await stranger.refused(browser())
        assert condition == "amqp:unauthorized-access"
        client = stage.client()
        assert (await client.refused(browser("nowhere")))[0] == "amqp:not-found"
        await client.attached(browser())
        await stage.broker.change(lambda catalogue, _: catalogue.delete(catalogue.queue("orders")))
        client.peer.check(has_changed=True)
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "amqp:not-found"

    play(tmp_path, scenario)


def test_a_copy_in_a_subscription_has_the_number_of_its_topic(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for made in (Topic(name="news"), Subscription(topic="news", name="all")):
            await stage.broker.change(partial(_created, made))
        await stage.broker.send("news", [incoming_message(message(b"a"))])
        await stage.broker.counts("news/Subscriptions/all")
        client = stage.client()
        await client.attached(browser("news/Subscriptions/all"), given=1)
        ((_, payload),) = await client.received(1)
        assert (amqp.split(payload).annotations or {})["x-opt-enqueue-sequence-number"] == 1

    play(tmp_path, scenario)


def _created(made: Topic | Subscription, catalogue: Catalogue, now: int) -> Catalogue:
    return catalogue.create(made, now)
