"""Receiving and settling through the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address, parse_address
from oncebus.broker.broker import Received
from oncebus.engine.store import Action, Mode, Outcome, SessionCannotBeLocked, SessionLockLost, SubQueue
from oncebus.model.entities import InvalidOperation, NotFound
from tests.broker.scenes import DEAD, MINUTE, SECOND, Scene, ids, message, play, sequences

Q = Address("q")


def token(received: Received) -> bytes:
    assert received.message.token is not None
    return received.message.token


def test_peek_lock_holds_a_message_until_its_lock_expires_or_is_renewed(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=MINUTE)
        await scene.send("q", "a")
        [held] = await scene.receive()
        assert held.message.deliveries == 1
        assert held.message.locked_until == scene.time.now + MINUTE
        assert await scene.receive() == []
        scene.time.advance(59)
        assert await scene.broker.renew_locks(Q, [token(held), b"x" * 16]) == [
            scene.time.now + MINUTE,
            Outcome.MESSAGE_LOCK_LOST,
        ]
        await scene.later(59)
        assert await scene.receive() == []
        await scene.later(1)
        assert await scene.settle("q", held, Action.COMPLETE) is Outcome.MESSAGE_LOCK_LOST
        [again] = await scene.receive()
        assert again.message.deliveries == 2
        assert await scene.settle("q", again, Action.COMPLETE) is Outcome.DONE
        assert (await scene.counts()).active == 0

    play(tmp_path, plot)


def test_a_waiting_receiver_gets_messages_that_are_abandoned_or_whose_lock_expires(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=MINUTE)
        await scene.send("q", "a")
        [held] = await scene.receive()
        waiting = asyncio.create_task(scene.broker.receive(Q, 1, wait=20))
        await asyncio.sleep(0.01)
        await scene.settle("q", held, Action.ABANDON)
        [again] = await waiting
        waiting = asyncio.create_task(scene.broker.receive(Q, 1, wait=20))
        await asyncio.sleep(0.01)
        await scene.later(60)
        [third] = await waiting
        assert [each.message.deliveries for each in (held, again, third)] == [1, 2, 3]

    play(tmp_path, plot)


def test_a_message_delivered_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(max_delivery_count=3)
        await scene.send("q", "a", "b")
        for attempt in range(1, 4):
            found = await scene.receive()
            assert [each.message.deliveries for each in found] == [attempt] * 2
            await scene.settle("q", found[0], Action.ABANDON)
            await scene.settle("q", found[1], Action.RELEASE if attempt == 2 else Action.ABANDON)
            if attempt == 2:
                break
        [first] = [each for each in await scene.receive() if each.message.message_id == "a"]
        await scene.settle("q", first, Action.ABANDON)
        [dead] = await scene.receive(sub_queue=DEAD)
        assert (dead.message.message_id, dead.message.reason) == ("a", "MaxDeliveryCountExceeded")
        assert (await scene.counts()).active == 1

    play(tmp_path, plot)


@pytest.mark.parametrize("keeps", [True, False])
def test_expired_messages_go_to_the_dead_letters_if_the_entity_says_so(tmp_path: Path, keeps: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(dead_lettering_on_message_expiration=keeps)
        await scene.send("q", message("a", ttl=SECOND), "b")
        await scene.flow()
        await scene.later(1)
        dead = await scene.receive(sub_queue=DEAD)
        assert [(each.message.message_id, each.message.reason) for each in dead] == (
            [("a", "TTLExpiredException")] if keeps else []
        )
        assert await scene.taken() == ["b"]

    play(tmp_path, plot)


def test_dead_letters_have_a_reason_and_are_received_and_settled_like_others(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", "a")
        [held] = await scene.receive()
        await scene.settle("q", held, Action.DEAD_LETTER, reason="bad", description="very")
        [dead] = await scene.receive(sub_queue=DEAD)
        assert (dead.message.reason, dead.message.description) == ("bad", "very")
        assert await scene.settle("q", dead, Action.COMPLETE) is Outcome.DONE
        assert await scene.peeked(sub_queue=DEAD) == []

    play(tmp_path, plot)


def test_messages_come_in_the_order_they_were_accepted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        sent = await asyncio.gather(*(scene.send("q", f"m{n}", f"n{n}") for n in range(50)))
        numbers = [number for pair in sent for number in pair]
        assert sorted(numbers) == list(range(1, 101))
        found = await scene.receive()
        assert sequences(found) == list(range(1, 101))
        by_number = {
            number: name for n, pair in enumerate(sent) for number, name in zip(pair, (f"m{n}", f"n{n}"), strict=True)
        }
        assert ids(found) == [by_number[number] for number in range(1, 101)]

    play(tmp_path, plot)


# Sessions


def test_sessions_are_held_by_name_or_as_the_next_free_one_in_order(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        await scene.send("q", *(message(f"{name}{n}", session=name) for n in range(3) for name in ("x", "y")))
        with pytest.raises(InvalidOperation, match="non-sessionful"):
            await scene.receive()
        await scene.flow()
        x = await scene.broker.accept_session(Q, None)
        assert x is not None
        assert x.session == "x"
        with pytest.raises(SessionCannotBeLocked):
            await scene.broker.accept_session(Q, "x")
        y = await scene.broker.accept_session(Q, "y")
        assert await scene.broker.accept_session(Q, None) is None
        assert ids(await scene.receive(session=y)) == ["y0", "y1", "y2"]
        [first] = await scene.receive(count=1, session=x)
        await scene.settle("q", first, Action.COMPLETE)
        waiting = asyncio.create_task(scene.broker.accept_session(Q, None, wait=20))
        await asyncio.sleep(0.01)
        await scene.broker.release_session(x)
        again = await waiting
        assert again is not None
        assert ids(await scene.receive(session=again)) == ["x1", "x2"]

    play(tmp_path, plot)


def test_a_session_has_a_state_and_a_lock_that_is_renewed_and_lost(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True, lock_duration=MINUTE)
        lock = await scene.broker.accept_session(Q, "s")
        assert lock is not None
        assert await scene.broker.session_state(lock) is None
        await scene.broker.set_session_state(lock, b"state")
        scene.time.advance(59)
        lock = await scene.broker.renew_session(lock)
        scene.time.advance(59)
        assert await scene.broker.session_state(lock) == b"state"
        assert await scene.broker.sessions(Q) == ["s"]
        await scene.later(1)
        with pytest.raises(SessionLockLost):
            await scene.broker.set_session_state(lock, None)
        with pytest.raises(SessionLockLost):
            await scene.receive(session=lock)
        lock = await scene.broker.accept_session(Q, "s")
        assert lock is not None
        assert await scene.broker.session_state(lock) == b"state"

    play(tmp_path, plot)


def test_a_queue_with_sessions_refuses_a_message_without_one(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        with pytest.raises(InvalidOperation, match="SessionId was not set"):
            await scene.send("q", message("a", session="s"), "b")
        assert (await scene.counts()).active == 0

    play(tmp_path, plot)


def test_locks_of_a_deleted_queue_are_lost_and_do_not_apply_to_its_successor(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True)
        await scene.send("q", message("old", session="s"))
        await scene.flow()
        lock = await scene.broker.accept_session(Q, "s")
        assert lock is not None
        [held] = await scene.receive(session=lock)
        await scene.delete_queue()
        await scene.queue(requires_session=True)
        await scene.send("q", message("new", session="s"))
        new = await scene.broker.accept_session(Q, "s")
        assert await scene.settle("q", held, Action.COMPLETE) is Outcome.MESSAGE_LOCK_LOST
        with pytest.raises(SessionLockLost):
            await scene.receive(session=lock)
        for attempt in (
            scene.broker.renew_session(lock),
            scene.broker.session_state(lock),
            scene.broker.set_session_state(lock, b""),
        ):
            with pytest.raises(SessionLockLost):
                await attempt
        assert ids(await scene.receive(session=new)) == ["new"]

    play(tmp_path, plot)


def test_a_receiver_that_waits_at_a_deleted_entity_gets_an_error(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.queue("sessions", requires_session=True)
        waiting = [
            asyncio.create_task(scene.broker.receive(Q, 1, wait=20)),
            asyncio.create_task(scene.broker.accept_session(Address("sessions"), None, wait=20)),
        ]
        await asyncio.sleep(0.01)
        await scene.delete_queue()
        await scene.delete_queue("sessions")
        for task in waiting:
            with pytest.raises(NotFound):
                await task

    play(tmp_path, plot)


# Large bodies


@pytest.mark.parametrize("mode", Mode)
def test_large_bodies_have_files_that_are_deleted_with_their_messages(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        paths = [await scene.subscription(name) for name in ("s1", "s2")]
        body = bytes(range(256)) * 800
        await scene.send("t", message("a", body))
        [file] = (tmp_path / "bodies").iterdir()
        for path in paths:
            [received] = await scene.receive(path, mode=mode)
            assert received.body.endswith(body)
            await scene.rounds()
            assert file.exists()
            if mode is Mode.PEEK_LOCK:
                await scene.settle(path, received, Action.COMPLETE)
        await scene.rounds(2)
        # A receiver that just got it may still be reading.
        assert file.exists()
        monkeypatch.setattr("oncebus.broker.bodies.KEPT_SECONDS", 0.0)
        await scene.rounds()
        assert not file.exists()

    play(tmp_path, plot)


def test_a_message_whose_body_is_damaged_does_not_take_its_neighbours_with_it(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("a", bytes(100_000)), "b")
        for file in (tmp_path / "bodies").iterdir():
            file.write_bytes(b"damaged")
        assert await scene.taken() == ["b"]

    play(tmp_path, plot)


def test_addresses_name_sub_queues_in_any_case() -> None:
    assert parse_address("sb://host:5672/q") == Address("q")
    assert parse_address("q/$DeadLetterQueue") == Address("q", DEAD)
    assert parse_address("t/Subscriptions/s/$deadletterqueue") == Address("t/Subscriptions/s", DEAD)
    assert parse_address("q/$Transfer/$DeadLetterQueue") == Address("q", SubQueue.TRANSFER_DEAD_LETTER)
