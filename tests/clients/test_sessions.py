"""Sessions: by name, the next one, their state, their locks."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError, SessionLockLostError

from .served import PATIENCE, SHORT, Served, async_received, body, completed, left, received, texts
from .together import together

ACT = "locks"
LOCK = 10.0


def of(session: str, *bodies: bytes) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(content, session_id=session) for content in bodies]


@together
def test_a_session_is_received_in_order_by_the_one_that_holds_it(served: Served) -> None:
    queue = served.queue("sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([*of("a", b"1"), *of("b", b"other"), *of("a", b"2", b"3")])
        with client.get_queue_receiver(queue, session_id="a") as holder:
            assert holder.session.session_id == "a"
            with served.client(retry_total=0) as other, pytest.raises(SessionCannotBeLockedError):
                other.get_queue_receiver(queue, session_id="a").receive_messages(1, max_wait_time=PATIENCE)
            with client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE
            ) as next_one:
                assert next_one.session.session_id == "b"
                assert completed(next_one, 1) == [b"other"]
            messages = received(holder, 3)
            assert [(body(message), message.session_id) for message in messages] == [
                (b"1", "a"),
                (b"2", "a"),
                (b"3", "a"),
            ]
            holder.complete_message(messages[0])
            holder.dead_letter_message(messages[1], reason="why")
            holder.defer_message(messages[2])
            (deferred,) = holder.receive_deferred_messages(messages[2].sequence_number or 0)
            holder.complete_message(deferred)
            assert left(holder) == []


@together
async def test_the_asyncio_client_accepts_one_session_after_another(served: Served) -> None:
    queue = served.queue("sessions")
    async with served.async_client() as client, client.get_queue_sender(queue) as sender:
        for session in ("a", "b", "c"):
            await sender.send_messages(of(session, *texts(range(5))))
        found: dict[str, list[bytes]] = {}

        async def take() -> None:
            async with client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE
            ) as receiver:
                messages = await async_received(receiver, 5)
                found[receiver.session.session_id] = [body(message) for message in messages]
                await receiver.session.set_state(b"done")
                for message in messages:
                    await receiver.complete_message(message)
                assert await receiver.session.get_state() == b"done"

        await asyncio.gather(take(), take(), take())
        assert found == {session: texts(range(5)) for session in ("a", "b", "c")}


@together
def test_the_state_of_a_session_stays_with_it(served: Served) -> None:
    queue = served.queue("sessions")
    with served.client() as client:
        with client.get_queue_receiver(queue, session_id="a") as first:
            assert first.session.get_state() is None
            first.session.set_state("step 1")
            assert first.session.get_state() == b"step 1"
        with client.get_queue_receiver(queue, session_id="a") as second:
            assert second.session.get_state() == b"step 1"
            second.session.set_state(None)
            assert second.session.get_state() is None


@together
def test_a_session_that_is_renewed_outlives_its_first_lock(served: Served) -> None:
    queue = served.queue("short-sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(of("a", b"1"))
        served.arrived(queue, 1)
        with client.get_queue_receiver(queue, session_id="a") as holder:
            before = holder.session.locked_until_utc
            assert before is not None
            (message,) = received(holder, 1)
            for _ in range(6):
                time.sleep(LOCK * 0.2)
                assert holder.session.renew_lock() > before
            assert datetime.now(UTC) > before
            holder.complete_message(message)


@together
def test_the_clients_auto_renewer_keeps_a_session(served: Served) -> None:
    queue = served.queue("short-sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender, AutoLockRenewer() as renewer:
        sender.send_messages(of("a", b"1"))
        served.arrived(queue, 1)
        with client.get_queue_receiver(queue, session_id="a") as holder:
            renewer.register(holder, holder.session, max_lock_renewal_duration=60)
            (message,) = received(holder, 1)
            time.sleep(LOCK * 1.6)
            holder.complete_message(message)


@together
def test_a_session_with_an_expired_lock_is_lost_and_free_for_another(served: Served) -> None:
    queue = served.queue("short-sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(of("a", b"1"))
        served.arrived(queue, 1)
        with client.get_queue_receiver(queue, session_id="a") as holder:
            (message,) = received(holder, 1)
            time.sleep(LOCK + 1.5)
            with pytest.raises(SessionLockLostError):
                holder.complete_message(message)
            with pytest.raises(SessionLockLostError):
                holder.session.renew_lock()
        with client.get_queue_receiver(queue, session_id="a") as another:
            (again,) = received(another, 1)
            assert (body(again), again.delivery_count) == (b"1", 1)
            another.complete_message(again)


@together
async def test_the_asyncio_client_holds_a_session_by_its_name_for_as_long_as_it_renews_it(served: Served) -> None:
    queue = served.queue("short-sessions")
    async with served.async_client() as client, client.get_queue_sender(queue) as sender:
        await sender.send_messages([*of("other", b"other"), *of("a", b"1", b"2")])
        served.arrived(queue, 3)
        async with client.get_queue_receiver(queue, session_id="a") as holder:
            assert holder.session.session_id == "a"
            async with served.async_client(retry_total=0) as other:
                with pytest.raises(SessionCannotBeLockedError):
                    await other.get_queue_receiver(queue, session_id="a").receive_messages(1, max_wait_time=PATIENCE)
            before = holder.session.locked_until_utc
            assert before is not None
            first, second = await async_received(holder, 2)
            assert [body(message) for message in (first, second)] == [b"1", b"2"]
            for _ in range(6):
                await asyncio.sleep(LOCK * 0.2)
                assert await holder.session.renew_lock() > before
            assert datetime.now(UTC) > before
            for message in (first, second):
                await holder.complete_message(message)


@together
async def test_the_asyncio_client_loses_a_session_that_it_does_not_renew(served: Served) -> None:
    queue = served.queue("short-sessions")
    async with served.async_client() as client, client.get_queue_sender(queue) as sender:
        await sender.send_messages(of("a", b"1", b"2"))
        served.arrived(queue, 2)
        async with client.get_queue_receiver(queue, session_id="a") as holder:
            first, second = await async_received(holder, 2)
            await holder.session.renew_lock()
            await holder.complete_message(first)
            await asyncio.sleep(LOCK + 1.5)
            with pytest.raises(SessionLockLostError):
                await holder.complete_message(second)
            with pytest.raises(SessionLockLostError):
                await holder.session.renew_lock()
        async with client.get_queue_receiver(queue, session_id="a") as another:
            (again,) = await async_received(another, 1)
            assert (body(again), again.delivery_count) == (b"2", 1)
            await another.complete_message(again)


@together
async def test_the_asyncio_client_times_out_without_a_next_session(served: Served) -> None:
    queue = served.queue("sessions")
    async with served.async_client(retry_total=0) as client:
        receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SHORT)
        with pytest.raises(OperationTimeoutError):
            await receiver.receive_messages(1)
        await receiver.close()


@together
def test_a_waiting_receiver_gets_an_error_when_its_session_is_lost(served: Served) -> None:
    queue = served.queue("short-sessions")
    with (
        served.client() as client,
        client.get_queue_receiver(queue, session_id="a") as holder,
        pytest.raises(SessionLockLostError),
    ):
        holder.receive_messages(1, max_wait_time=PATIENCE)


@together
def test_a_client_times_out_without_a_next_session(served: Served) -> None:
    queue = served.queue("sessions")
    with served.client(retry_total=0) as client:
        receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SHORT)
        with pytest.raises(OperationTimeoutError):
            receiver.receive_messages(1)
        receiver.close()


@together
def test_a_session_is_received_and_deleted_and_gets_due_messages(served: Served) -> None:
    queue = served.queue("sessions")
    with served.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(of("a", b"1", b"2"))
        sender.schedule_messages(of("a", b"3"), datetime.now(UTC) + timedelta(seconds=2))
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver(queue, session_id="a", receive_mode=mode) as holder:
            assert [body(message) for message in received(holder, 3)] == [b"1", b"2", b"3"]
            assert left(holder) == []
