"""The broker shows how many receivers are attached, and when somebody last asked for messages."""

from __future__ import annotations

from pathlib import Path

from oncebus.amqp.performatives import Attach, Detach, Source
from oncebus.amqp.types import Symbol
from oncebus.broker.addresses import parse_address

from .raw import Stage, of, play


def of_session(handle: int) -> Attach:
    source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): None})
    return of("sessions", handle=handle, source=source)


def test_attached_receivers_are_counted_until_they_leave(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        orders = stage.broker.catalogue.queue("orders")
        assert (stage.broker.consumers.attached(orders.id), stage.broker.received_at(orders)) == (0, None)
        one, other = stage.client(), stage.client()
        await one.attached(of("orders", handle=0))
        await one.attached(of("orders", "r2", 1))
        await other.attached(of("orders"))
        await other.attached(of("orders/$deadletterqueue", "r2", 1))
        assert stage.broker.consumers.attached(orders.id) == 3
        assert not stage.broker.consumers.is_polled(orders.id)
        one.do(Detach(handle=1, closed=True))
        await one.next(Detach)
        assert stage.broker.consumers.attached(orders.id) == 2
        one.lose()
        other.lose()
        assert stage.broker.consumers.attached(orders.id) == 0
        assert stage.broker.received_at(orders) is not None

    play(tmp_path, scenario)


def test_a_receiver_that_waits_for_a_session_is_a_consumer(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        sessions = stage.broker.catalogue.queue("sessions")
        client = stage.client()
        client.do(of_session(0))
        assert stage.broker.consumers.attached(sessions.id) == 1
        client.lose()
        assert stage.broker.consumers.attached(sessions.id) == 0

    play(tmp_path, scenario)


def test_asking_for_messages_is_noted_and_asking_for_dead_letters_is_not(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        orders = stage.broker.catalogue.queue("orders")
        await stage.broker.receive(parse_address("orders/$deadletterqueue"), 1)
        assert stage.broker.received_at(orders) is None
        await stage.broker.receive(parse_address("orders"), 1)
        first = stage.broker.received_at(orders)
        stage.time.advance(5)
        await stage.broker.receive(parse_address("orders"), 1)
        assert stage.broker.received_at(orders) == (first or 0) + 5_000_000

        # Nobody is attached, so whoever asks is polling, for one minute.
        stage.time.advance(59)
        assert stage.broker.consumers.is_polled(orders.id)
        stage.time.advance(1)
        assert not stage.broker.consumers.is_polled(orders.id)

    play(tmp_path, scenario)
