"""A client sees its own sends at once: it peeks, receives, counts and cancels right after sending.

All messages pass through Spark first. These tests run alone: after two seconds, a busy broker may answer before the
pipeline is done. If it did, the test runs again with other entities.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusSender as AsyncSender
from azure.servicebus.exceptions import MessageNotFoundError

from oncebus.broker.broker import READ_YOUR_SENDS_SECONDS

from . import javascript
from .served import PATIENCE, Pair, Served, body, left, texts
from .together import Acts

KINDS = ["plain", "detecting"]
TIMES = 3
"""How often a test is repeated because of a busy broker before it fails."""


class TooBusy(Exception):
    """The broker took so long that it was allowed to answer early."""


@pytest.fixture(autouse=True)
def _alone(acts: Acts) -> None:
    acts.wait_for_all()


@contextmanager
def looking(what: str) -> Iterator[None]:
    """Time a query. Its result must be right if it was answered in time."""
    began = time.monotonic()
    try:
        yield
    except (AssertionError, MessageNotFoundError) as error:
        if time.monotonic() - began < READ_YOUR_SENDS_SECONDS:
            raise
        raise TooBusy(what) from error
    finally:
        print(f"{what}: {time.monotonic() - began:.2f} s")


def in_time(play: Callable[[], None]) -> None:
    """Repeat a play until all its queries were answered in time."""
    for _ in range(TIMES - 1):
        try:
            return play()
        except TooBusy as error:
            print(f"once more: {error}")
    return play()


def send_ten(pair: Pair) -> None:
    for text in texts(range(10)):
        pair.sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))


@pytest.mark.parametrize("kind", KINDS)
def test_ten_messages_are_peeked_right_after_sending(served: Served, kind: str) -> None:
    def play() -> None:
        with served.pair(kind) as pair:
            send_ten(pair)
            with looking("peek"):
                assert [body(message) for message in pair.receiver.peek_messages(10)] == texts(range(10))

    in_time(play)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_messages_are_counted_right_after_sending(served: Served, kind: str) -> None:
    def play() -> None:
        with served.pair(kind) as pair, served.administration() as admin:
            send_ten(pair)
            with looking("count"):
                counts = admin.get_queue_runtime_properties(pair.queue)
                assert (counts.active_message_count, counts.total_message_count) == (10, 10)
            later = datetime.now(UTC) + timedelta(hours=1)
            pair.sender.schedule_messages(ServiceBusMessage(b"x", message_id="later"), later)
            with looking("count scheduled"):
                assert admin.get_queue_runtime_properties(pair.queue).scheduled_message_count == 1
            if kind == "detecting":
                send_ten(pair)
                with looking("count again"):
                    assert admin.get_queue_runtime_properties(pair.queue).active_message_count == 10

    in_time(play)


@pytest.mark.parametrize("wait", [5.0, 1.0])
def test_ten_messages_are_received_right_after_sending(served: Served, wait: float) -> None:
    with served.pair() as pair:
        send_ten(pair)
        found: list[ServiceBusReceivedMessage] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < 10:
            assert time.monotonic() < deadline, f"{len(found)} of 10 came"
            began = time.monotonic()
            some = pair.receiver.receive_messages(10, max_wait_time=wait)
            print(f"receive {len(some)} messages: {time.monotonic() - began:.2f} s")
            assert some or found or wait < 5.0, "nothing has come to who was ready to wait"
            found += some
        assert [body(message) for message in found] == texts(range(10))
        assert {message.delivery_count for message in found} == {0}


def test_a_message_is_cancelled_right_after_scheduling(served: Served) -> None:
    def play() -> None:
        with served.pair() as pair:
            at = datetime.now(UTC) + timedelta(hours=1)
            numbers = pair.sender.schedule_messages([ServiceBusMessage(text) for text in texts(range(10))], at)
            with looking("cancel"):
                pair.sender.cancel_scheduled_messages(numbers)
            assert left(pair.receiver) == []

    in_time(play)


async def async_send_ten(sender: AsyncSender) -> None:
    for text in texts(range(10)):
        await sender.send_messages(ServiceBusMessage(text, message_id=text.decode()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_asyncio_client_peeks_and_counts_ten_messages_right_after_sending(served: Served, kind: str) -> None:
    async def play() -> None:
        peeked, counted = served.queue(kind), served.queue(kind)
        async with (
            served.async_client() as client,
            client.get_queue_sender(peeked) as first,
            client.get_queue_receiver(peeked) as receiver,
            client.get_queue_sender(counted) as second,
        ):
            await async_send_ten(first)
            with looking("peek"):
                assert [body(message) for message in await receiver.peek_messages(10)] == texts(range(10))
            await async_send_ten(second)
            # The administration client for asyncio needs another library, so use the blocking one.
            with served.administration() as admin, looking("count"):
                counts = admin.get_queue_runtime_properties(counted)
                assert (counts.active_message_count, counts.total_message_count) == (10, 10)

    in_time(lambda: asyncio.run(play()))


def test_the_asyncio_client_cancels_messages_right_after_scheduling(served: Served) -> None:
    async def play() -> None:
        queue = served.queue()
        async with (
            served.async_client() as client,
            client.get_queue_sender(queue) as sender,
            client.get_queue_receiver(queue) as receiver,
        ):
            at = datetime.now(UTC) + timedelta(hours=1)
            numbers = await sender.schedule_messages([ServiceBusMessage(text) for text in texts(range(10))], at)
            with looking("cancel"):
                await sender.cancel_scheduled_messages(numbers)
            assert await receiver.peek_messages(10, sequence_number=1) == []

    in_time(lambda: asyncio.run(play()))


def test_the_javascript_client_peeks_counts_and_cancels_right_after_sending(served: Served) -> None:
    javascript.play("looking_at_once.mjs", served, plain=3 * TIMES, detecting=2 * TIMES)
