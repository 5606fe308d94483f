"""Transactions of the broker: what they do together, their rules, and what a crash leaves of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker import transactions as rules
from oncebus.broker.addresses import Address
from oncebus.broker.transactions import RolledBack, Transaction, TransactionLate, Transactions, UnknownTransaction, Via
from oncebus.engine.inbox import InboxFull, InboxReader, InboxWriter
from oncebus.engine.store import Action, ChangesRefused, Mode, Outcome, SessionLockLost, Settlement
from oncebus.model.entities import BadRequest, InvalidOperation, NotFound, QuotaExceeded
from tests.broker.scenes import DEAD, MINUTE, SECOND, Scene, message, play, scene

Q = Address("q")


class Client:
    """A client of a scene with one transaction at a time."""

    def __init__(self, scene: Scene, key: str | None = None) -> None:
        self.all: Transactions = scene.broker.transactions()
        self.all.key = key
        self.declare()

    def declare(self) -> None:
        self.transaction: Transaction = self.all.declare(10, self)

    def send(self, path: str, *names: str, via: int | None = None, **more: Any) -> None:
        with self.all.work(self.transaction.id, going(via)) as work:
            work.send(path, [message(name, **more) for name in names])

    async def settle(self, received: Any, action: Action = Action.COMPLETE, path: str = "q", **more: Any) -> Outcome:
        session = more.pop("lock", None)
        with self.all.work(self.transaction.id, going(more.pop("via", None))) as work:
            settlement = Settlement(action, received.message.token, **more)
            return (await work.settle(Address(path), [settlement], session))[0]

    async def commit(self) -> None:
        await self.all.take(self.transaction.id).commit()

    def roll_back(self) -> None:
        self.all.take(self.transaction.id).roll_back()


def going(via: int | None) -> Via | None:
    made = Via()
    made.entity = via
    return None if via is None else made


async def locked(scene: Scene, *names: str, path: str = "q") -> list[Any]:
    await scene.send(path, *names)
    return await scene.receive(path, len(names))


def test_everything_happens_at_the_commit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        one, two, three, four = await locked(scene, "1", "2", "3", "4")
        client = Client(scene)
        client.send("q", "a", "b")
        for received, action in zip(
            (one, two, three, four), (Action.COMPLETE, Action.ABANDON, Action.DEFER, Action.DEAD_LETTER), strict=True
        ):
            assert await client.settle(received, action) is Outcome.DONE
        counts = await scene.counts()
        assert (counts.active, counts.deferred, counts.dead_letter) == (4, 0, 0)
        await client.commit()
        counts = await scene.counts()
        assert (counts.active, counts.deferred, counts.dead_letter) == (3, 1, 1)
        assert await scene.taken() == ["2", "a", "b"]
        assert scene.core.committer.held == 0
        assert not scene.core.committer.working

    play(tmp_path, plot)


def test_nothing_happens_after_a_rollback_and_the_lock_still_holds(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        client = Client(scene)
        client.send("q", "a")
        await client.settle(received)
        client.roll_back()
        assert scene.core.committer.held == 0
        assert await scene.peeked() == ["1"]
        assert await scene.settle("q", received, Action.COMPLETE) is Outcome.DONE
        assert await scene.peeked() == []
        with pytest.raises(UnknownTransaction, match="not declared"):
            client.send("q", "b")
        with pytest.raises(UnknownTransaction):
            await client.commit()

    play(tmp_path, plot)


@pytest.mark.parametrize("settles", [False, True])
def test_messages_are_in_one_commit_of_the_inbox_whatever_their_entities(tmp_path: Path, settles: bool) -> None:
    """So they become visible together: micro-batches are cut at commits, and ingested as a whole."""

    async def plot(scene: Scene) -> None:
        queue = await scene.queue()
        await scene.topic()
        await scene.subscription()
        await scene.queue("other", detects=True)
        (received,) = await locked(scene, "1")
        scene.pipeline.is_paused = True
        client = Client(scene)
        client.send("q", "q1", "q2", via=queue.id)
        client.send("t", "t1", via=queue.id)
        client.send("other", *(f"o{number}" for number in range(90)), via=queue.id)
        if settles:
            await client.settle(received, via=queue.id)
        await asyncio.gather(*(scene.send("q", f"x{number}") for number in range(20)), client.commit())
        rows = InboxReader(scene.folders.inbox).read(1, scene.core.entrance.acceptor.last_commit)
        found = [row for row in rows if row.message_id[0] in "qto"]
        assert len(found) == 93
        assert len({row.commit for row in found}) == 1
        scene.pipeline.is_paused = False
        await scene.flow()
        assert (await scene.counts("other")).active == 90
        assert await scene.taken("t/subscriptions/s") == ["t1"]

    play(tmp_path, plot)


def test_messages_are_judged_at_the_commit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        client = Client(scene)
        client.send("q", "a", "b", "a")
        await scene.send("q", "a")
        await client.commit()
        # Sent again with the same ids, as after a lost answer.
        client.declare()
        client.send("q", "a", "b")
        await client.commit()
        assert await scene.taken() == ["a", "b"]
        assert len(await scene.duplicates()) == 4

    play(tmp_path, plot)


def test_a_rolled_back_message_is_not_remembered(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        client = Client(scene)
        client.send("q", "a")
        client.roll_back()
        await scene.send("q", "a")
        assert await scene.taken() == ["a"]

    play(tmp_path, plot)


def test_a_repeated_transaction_that_settles_fails_as_a_whole(tmp_path: Path) -> None:
    """The answer was lost, and the client does the same again."""

    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        for outcome in (Outcome.DONE, Outcome.MESSAGE_LOCK_LOST):
            client = Client(scene)
            client.send("q", "a")
            assert await client.settle(received) is outcome
            if outcome is Outcome.DONE:
                await client.commit()
            else:
                with pytest.raises(RolledBack, match="message-lock-lost"):
                    await client.commit()
        assert await scene.taken() == ["a"]

    play(tmp_path, plot)


def test_a_lock_that_is_lost_before_the_commit_fails_everything(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=10 * SECOND)
        one, two = await locked(scene, "1", "2")
        client = Client(scene)
        client.send("q", "a")
        await client.settle(one)
        await client.settle(two)
        scene.time.advance(10)
        with pytest.raises(RolledBack, match="message-lock-lost") as failed:
            await client.commit()
        assert isinstance(failed.value.reason, ChangesRefused)
        assert await scene.peeked() == ["1", "2"]
        assert not scene.core.committer.enlisted

    play(tmp_path, plot)


@pytest.mark.parametrize("action", [Action.COMPLETE, Action.ABANDON, Action.RELEASE, Action.DEFER, Action.DEAD_LETTER])
def test_while_a_message_is_in_a_transaction_nobody_else_settles_it(tmp_path: Path, action: Action) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        one, two, three = await locked(scene, "1", "2", "3")
        client, other = Client(scene), Client(scene)
        await client.settle(one)
        settlements = [Settlement(action, each.message.token) for each in (one, three)]
        assert await scene.broker.settle(Q, settlements) == [Outcome.IN_TRANSACTION, Outcome.DONE]
        assert await other.settle(one) is Outcome.IN_TRANSACTION
        other.declare()
        await other.settle(two)
        await client.commit()
        other.roll_back()
        assert await scene.settle("q", one, action) is Outcome.MESSAGE_LOCK_LOST
        assert await scene.settle("q", two, action) is Outcome.DONE
        assert not scene.core.committer.enlisted

    play(tmp_path, plot)


@pytest.mark.parametrize("again", ["settle", "send", "unfinished"])
def test_a_failed_request_makes_the_commit_fail(tmp_path: Path, again: str) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        client = Client(scene)
        client.send("q", "a")
        await client.settle(received)
        if again == "settle":
            # A token can be used once only.
            assert await client.settle(received, Action.ABANDON) is Outcome.MESSAGE_LOCK_LOST
        elif again == "send":
            with pytest.raises(BadRequest):
                client.send("q", "x" * 200)
        else:
            with pytest.raises(asyncio.CancelledError), client.all.work(client.transaction.id):
                raise asyncio.CancelledError
        assert scene.core.committer.held == 0
        with pytest.raises(RolledBack):
            client.send("q", "b")
        with pytest.raises(RolledBack):
            await client.commit()
        assert await scene.peeked() == ["1"]

    play(tmp_path, plot)


def test_the_commit_waits_for_requests_that_came_before_it(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        client = Client(scene)
        first, second = client.all.work(client.transaction.id), client.all.work(client.transaction.id)
        committing = asyncio.create_task(client.commit())
        await asyncio.sleep(0.01)
        with first:
            first.send("q", [message("a")])
        await asyncio.sleep(0.01)
        assert not committing.done()
        with second:
            await second.settle(Q, [Settlement(Action.COMPLETE, received.message.token)])
        await committing
        assert await scene.taken() == ["a"]

    play(tmp_path, plot)


def test_a_commit_is_finished_even_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        for turns in range(12):
            (received,) = await locked(scene, "1")
            client = Client(scene)
            client.send("q", "a", body=bytes(70_000))
            await client.settle(received)
            committing = asyncio.create_task(client.commit())
            for _ in range(turns):
                await asyncio.sleep(0)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            await scene.core.background.drain()
            found = await scene.taken()
            # Cancelled before it began, it did nothing.
            assert found == ["a"] or (not found and turns == 0)
            if not found:
                client.roll_back()
                assert await scene.settle("q", received, Action.COMPLETE) is Outcome.DONE

    play(tmp_path, plot)


# Entities


def test_a_transaction_keeps_to_one_entity_unless_it_sends_via_it(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        first, second = await scene.queue("q"), await scene.queue("p")
        topic = await scene.topic()
        await scene.subscription()
        await scene.send("t", "t1", "t2")
        one, two = await scene.receive("t/subscriptions/s", 2)
        (received,) = await locked(scene, "p1", path="p")

        async def sent(path: str, name: str, via: int | None = None) -> None:
            client.send(path, name, via=via)

        async def fails(client: Client, doing: Awaitable[object]) -> None:
            with pytest.raises(InvalidOperation, match="cannot span multiple top-level entities"):
                await doing
            with pytest.raises(RolledBack):
                await client.commit()

        client = Client(scene)
        client.send("q", "1")
        await fails(client, sent("p", "2"))
        # A topic and its subscriptions are one entity.
        client.declare()
        client.send("t", "t3")
        await client.settle(one, path="t/subscriptions/s")
        await client.commit()
        # Via an entity, a transaction sends anywhere, but settles only there.
        client.declare()
        await client.settle(two, path="t/subscriptions/s", via=topic.id)
        client.send("q", "3", via=topic.id)
        client.send("p", "4", via=topic.id)
        await client.commit()
        client.declare()
        client.send("p", "5", via=first.id)
        await fails(client, client.settle(received, path="p", via=first.id))
        # All links go via the same entity.
        client.declare()
        client.send("p", "6", via=first.id)
        await fails(client, sent("p", "7", second.id))
        assert await scene.taken("q") == ["3"]
        assert await scene.taken("p") == ["4"]
        assert await scene.taken("t/subscriptions/s") == ["t3"]

    play(tmp_path, plot)


def test_an_entity_that_is_deleted_fails_the_commit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        for again in (False, True):
            client = Client(scene)
            client.send("q", "a")
            await scene.delete_queue()
            if again:
                await scene.queue()
            with pytest.raises(RolledBack) as failed:
                await client.commit()
            assert isinstance(failed.value.reason, NotFound)
            if not again:
                await scene.queue()
        assert await scene.taken() == []

    play(tmp_path, plot)


def test_quotas_count_all_messages_of_a_transaction(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(max_size_in_megabytes=1024)
        held = scene.core.accounting.held
        almost = (1024 << 20) - 150_000
        scene.core.accounting.held = lambda entity: almost + held(entity)  # type: ignore[method-assign]
        client = Client(scene)
        client.send("q", "a", body=bytes(100_000))
        with pytest.raises(QuotaExceeded, match="maximum entity size"):
            client.send("q", "b", body=bytes(100_000))
        # Meanwhile somebody else has filled it.
        client.declare()
        client.send("q", "c", body=bytes(100_000))
        scene.core.accounting.held = lambda entity: 1024 << 20  # type: ignore[method-assign]
        with pytest.raises(RolledBack, match="maximum entity size"):
            await client.commit()
        scene.core.accounting.held = held  # type: ignore[method-assign]
        assert await scene.taken() == []

    play(tmp_path, plot)


def test_large_bodies_are_written_and_deleted_with_their_messages(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        client = Client(scene)
        client.send("q", "a", "b", body=bytes(100_000))
        await client.settle(received)
        await client.commit()
        found = await scene.receive(mode=Mode.RECEIVE_AND_DELETE)
        assert [(each.message.message_id, len(each.body)) for each in found] == [("a", 100_008), ("b", 100_008)]
        # Refused: none of its files stays.
        client.declare()
        client.send("q", "c", body=bytes(100_000))
        await client.settle((await locked(scene, "2"))[0])
        await scene.delete_queue()
        with pytest.raises(RolledBack):
            await client.commit()
        await scene.rounds()
        unused = await scene.core.store.run(lambda store: store.body_files.list_unused())
        files = {path.name for path in scene.folders.body_files.iterdir()}
        assert files == set(unused)

    play(tmp_path, plot)


# Scheduled messages and sessions


def test_messages_are_scheduled_and_cancelled(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        later = scene.time.now + 10 * MINUTE
        (number,) = await scene.send("q", message("old", scheduled=later))
        client = Client(scene)
        with client.all.work(client.transaction.id) as work:
            numbers = await work.schedule(
                "q", [message("new", scheduled=later), message("soon", scheduled=scene.time.now + SECOND)]
            )
            assert await work.cancel_scheduled("q", [number]) == [Outcome.DONE]
        # Numbers are given in advance, and to nobody else.
        assert await scene.send("q", "x") == [numbers[-1] + 1]
        scene.time.advance(5)
        await client.commit()
        assert (await scene.counts()).scheduled == 2
        assert await scene.broker.cancel_scheduled("q", numbers[:1]) == [Outcome.DONE]
        await scene.later(1, rounds=3)
        # Its time had come before the commit.
        received = await scene.receive(mode=Mode.RECEIVE_AND_DELETE)
        assert [each.message.message_id for each in received] == ["x", "soon"]
        assert received[1].message.sequence > received[0].message.sequence

    play(tmp_path, plot)


def test_a_message_that_cannot_be_cancelled_fails_the_transaction(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (number,) = await scene.send("q", message("old", scheduled=scene.time.now + 10 * SECOND))
        client = Client(scene)
        with client.all.work(client.transaction.id) as work:
            assert await work.cancel_scheduled("q", [number, 99]) == [Outcome.DONE, Outcome.MESSAGE_NOT_FOUND]
        with pytest.raises(RolledBack, match="message-not-found"):
            await client.commit()
        client.declare()
        client.send("q", "a")
        with client.all.work(client.transaction.id) as work:
            assert await work.cancel_scheduled("q", [number]) == [Outcome.DONE]
        await scene.later(10, rounds=3)
        with pytest.raises(RolledBack, match="message-not-found"):
            await client.commit()
        assert await scene.taken() == ["old"]

    play(tmp_path, plot)


def test_the_state_of_a_session_is_set_at_the_commit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(requires_session=True, lock_duration=10 * SECOND)
        await scene.send("q", message("1", session="s"), message("2", session="s"))
        await scene.flow()
        lock = await scene.broker.accept_session(Q, "s")
        assert lock is not None
        one, two = await scene.receive(session=lock)
        client = Client(scene)
        with client.all.work(client.transaction.id) as work:
            await work.set_session_state(lock, b"done")
        await client.settle(one, lock=lock)
        client.send("q", "3", session="s")
        assert await scene.broker.session_state(lock) is None
        await client.commit()
        assert await scene.broker.session_state(lock) == b"done"
        assert sorted(await scene.peeked()) == ["2", "3"]
        # The lock of the session is lost before the commit, and then before the request.
        client.declare()
        with client.all.work(client.transaction.id) as work:
            await work.set_session_state(lock, b"lost")
        scene.time.advance(10)
        with pytest.raises(RolledBack, match="session-lock-lost"):
            await client.commit()
        client.declare()
        with pytest.raises(SessionLockLost), client.all.work(client.transaction.id) as work:
            await work.set_session_state(lock, b"lost")
        client.declare()
        assert await client.settle(two, lock=lock) is Outcome.SESSION_LOCK_LOST
        assert await scene.broker.session_state(lock) == b"done"

    play(tmp_path, plot)


# Limits


def test_a_transaction_ends_two_minutes_after_its_first_request(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        client = Client(scene)
        scene.time.advance(600)
        client.send("q", "a")
        scene.time.advance(119)
        client.send("q", "b")
        await scene.rounds()
        assert scene.core.committer.held
        scene.time.advance(1)
        # Before the chores see it, and after.
        with pytest.raises(RolledBack, match="within 2 minutes"):
            client.send("q", "c")
        late = Client(scene)
        late.send("q", "d")
        scene.time.advance(120)
        await scene.rounds()
        assert (scene.core.committer.held, len(scene.core.committer.working)) == (0, 0)
        for each in (client, late):
            with pytest.raises(RolledBack) as failed:
                await each.commit()
            assert isinstance(failed.value.reason, TransactionLate)
        assert await scene.taken() == []

    play(tmp_path, plot)


def test_no_key_takes_all_the_memory_of_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        monkeypatch.setattr(rules, "MOST_BYTES_IN_ALL", 200_000)
        # The first one declares its transaction before it has a key.
        greedy = [Client(scene, key) for key in (None, "greedy", "greedy")]
        greedy[0].all.key = "greedy"
        greedy[0].send("q", "a", body=bytes(45_000))
        greedy[1].send("q", "b", body=bytes(45_000))
        with pytest.raises(QuotaExceeded, match="The transactions of one key cannot hold 13"):
            greedy[2].send("q", "c", body=bytes(45_000))
        # The others still have room.
        Client(scene, "modest").send("q", "d", body=bytes(45_000))
        await greedy[0].commit()
        await greedy[1].commit()
        Client(scene, "greedy").send("q", "e", body=bytes(45_000))

    play(tmp_path, plot)


def test_a_transaction_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        client = Client(scene)
        client.send("q", *map(str, range(100)))
        with pytest.raises(QuotaExceeded, match="Cannot send more than 100 messages in a single transaction"):
            client.send("q", "x")
        assert client.all.declare(2)
        with pytest.raises(QuotaExceeded, match="already has 2 transactions"):
            client.all.declare(2)
        monkeypatch.setattr(rules, "MOST_BYTES", 100_000)
        one = Client(scene)
        one.send("q", "a", body=bytes(80_000))
        with pytest.raises(QuotaExceeded, match="cannot hold more than 100000 bytes"):
            one.send("q", "b", body=bytes(80_000))
        assert scene.core.committer.held == 0
        monkeypatch.setattr(rules, "MOST_CHANGED", 1)
        first, second = await locked(scene, "1", "2")
        last = Client(scene)
        await last.settle(first)
        with pytest.raises(QuotaExceeded, match="Cannot change more than 1 messages"):
            await last.settle(second)

    play(tmp_path, plot)


def test_a_client_that_is_gone_has_done_nothing(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        client = Client(scene)
        client.send("q", "a")
        other = client.all.declare(10)
        client.all.roll_back_of(client)
        assert (scene.core.committer.held, len(client.all)) == (0, 1)
        client.all.take(other.id)
        assert await scene.taken() == []

    play(tmp_path, plot)


# Failures and crashes


def test_a_full_inbox_after_the_commit_only_delays_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (one,) = await locked(scene, "1")

        def full(*_: Any) -> int:
            raise InboxFull("no room")

        with monkeypatch.context() as patched:
            patched.setattr(scene.core.entrance.acceptor._inbox, "append", full)
            client = Client(scene)
            client.send("q", "a", body=bytes(70_000))
            await client.settle(one)
            await client.commit()
            assert (await scene.counts()).active == 0
            alone = Client(scene)
            alone.send("q", "c")
            with pytest.raises(RolledBack, match="no room"):
                await alone.commit()
        await scene.rounds()
        assert await scene.taken() == ["a"]
        await scene.rounds()
        assert await scene.core.store.run(lambda store: store.pending.last()) == 0

    play(tmp_path, plot)


CRASHES = ["before", "changed", "appended", "ingested", "reported"]


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("size", [10, 70_000], ids=["small", "large"])
@pytest.mark.parametrize("detects", [False, True], ids=["plain", "detecting"])
def test_a_crash_never_leaves_half_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str, size: int, detects: bool
) -> None:
    """Whatever of a commit was written: the changes, the messages, the report of them."""

    class Dead(Exception):
        pass

    def die(*_: Any, **__: Any) -> Any:
        raise Dead

    async def before() -> Any:
        async with scene(tmp_path) as first:
            for name in ("q", "p"):
                await first.queue(name, detects=detects)
            (received,) = await locked(first, "1")
            client = Client(first)
            home = first.broker.catalogue.queue("q").id
            client.send("q", "a", body=bytes(size), via=home)
            client.send("p", "b", "c", body=bytes(size), via=home)
            await client.settle(received, via=home)
            first.pipeline.is_paused = crash != "ingested"
            store, inbox = first.core.store._store, first.core.entrance.acceptor._inbox
            with monkeypatch.context() as patched:
                if crash == "before":
                    patched.setattr(store.pending, "commit", die)
                elif crash == "changed":
                    patched.setattr(inbox, "append", die)
                elif crash in ("appended", "ingested"):
                    patched.setattr(store.pending, "end", die)
                await asyncio.gather(client.commit(), return_exceptions=True)
                await first.core.background.drain()
                if crash == "ingested":
                    await first.flow()
            first.core.committer._unappended.clear()
            first.core.committer._unreported.clear()
            return first.time

    async def after(time: Any) -> None:
        async with scene(tmp_path, time) as second:
            # The client sends again, as it has no answer.
            if detects:
                await second.send("q", "a")
            await second.rounds(3)
            q, p = await second.peeked("q"), await second.peeked("p")
            if crash == "before":
                assert (sorted(q), p) == (["1", "a"] if detects else ["1"], [])
            else:
                assert (q, p) == (["a"], ["b", "c"])
            found = await second.receive("p")
            assert all(len(each.body) > size for each in found)
            assert await second.core.store.run(lambda store: store.pending.last()) == 0
            assert await second.core.store.run(lambda store: store._tables.origins.count()) == 0
            if detects and crash != "before":
                assert len(await second.duplicates("q")) == 1

    time = asyncio.run(before())
    asyncio.run(after(time))


def test_a_second_crash_while_the_messages_are_appended_leaves_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> Any:
        raise RuntimeError("dead")

    async def first_life() -> Any:
        async with scene(tmp_path) as first:
            await first.queue()
            for received in await locked(first, "1", "2"):
                client = Client(first)
                client.send("q", f"after {received.message.message_id}")
                await client.settle(received)
                with monkeypatch.context() as patched:
                    patched.setattr(first.core.entrance.acceptor._inbox, "append", die)
                    await client.commit()
                first.core.committer._unappended.clear()
            return first.time

    async def second_life(time: Any) -> None:
        async with scene(tmp_path, time) as second:
            with monkeypatch.context() as patched:
                patched.setattr(second.core.store._store.pending, "end", die)
                for _ in range(3):
                    await asyncio.gather(second.core.committer.step(), return_exceptions=True)
                    await second.core.background.drain()
            second.core.committer._unreported.clear()

    async def third_life(time: Any) -> None:
        async with scene(tmp_path, time) as third:
            await third.rounds(3)
            assert await third.taken() == ["after 1", "after 2"]
            assert await third.core.store.run(lambda store: store.pending.last()) == 0

    time = asyncio.run(first_life())
    asyncio.run(second_life(time))
    asyncio.run(third_life(time))


def test_messages_for_an_entity_that_was_deleted_meanwhile_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise InboxFull("no room")

    async def plot(scene: Scene) -> None:
        home, _ = await scene.queue("q"), await scene.queue("p")
        (received,) = await locked(scene, "1")
        client = Client(scene)
        client.send("p", "a", body=bytes(70_000), via=home.id)
        await client.settle(received, via=home.id)
        with monkeypatch.context() as patched:
            patched.setattr(scene.core.entrance.acceptor._inbox, "append", full)
            await client.commit()
        await scene.delete_queue("p")
        await scene.rounds(2)
        assert await scene.core.store.run(lambda store: store.pending.last()) == 0
        assert await scene.core.store.run(lambda store: store.body_files.list_needed()) == []

    play(tmp_path, plot)


def test_dead_letters_can_be_settled_in_a_transaction(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        await scene.settle("q", received, Action.DEAD_LETTER)
        (dead,) = await scene.receive(sub_queue=DEAD)
        client = Client(scene)
        client.send("q", "again")
        await client.settle(dead)
        await client.commit()
        assert (await scene.peeked(), await scene.peeked(sub_queue=DEAD)) == (["again"], [])

    play(tmp_path, plot)


def test_a_dead_letter_is_not_dead_lettered_again_in_a_transaction_either(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        await scene.settle("q", received, Action.DEAD_LETTER)
        (dead,) = await scene.receive(sub_queue=DEAD)
        client = Client(scene)
        assert await client.settle(dead, Action.DEAD_LETTER) is Outcome.ALREADY_DEAD_LETTERED
        with pytest.raises(RolledBack, match="dead-letter"):
            await client.commit()
        # Its lock holds.
        await scene.settle("q", dead, Action.RELEASE)
        (again,) = await scene.receive(sub_queue=DEAD)
        assert again.message.deliveries == dead.message.deliveries == 0

    play(tmp_path, plot)


def test_an_entity_that_is_deleted_while_its_message_is_settled_fails_the_transaction(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (received,) = await locked(scene, "1")
        client, catalogue = Client(scene), scene.broker.catalogue
        gate = threading.Event()
        busy = asyncio.create_task(scene.core.store.run(lambda _: gate.wait()))
        settling = asyncio.create_task(client.settle(received))
        deleting = asyncio.create_task(scene.delete_queue())
        while scene.broker.catalogue is catalogue:
            await asyncio.sleep(0.005)
        gate.set()
        assert await settling is Outcome.DONE
        await asyncio.gather(busy, deleting)
        with pytest.raises(RolledBack) as failed:
            await client.commit()
        assert isinstance(failed.value.reason, ChangesRefused)

    play(tmp_path, plot)


def test_an_error_of_any_kind_after_the_commit_only_delays_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (one,) = await locked(scene, "1")
        client = Client(scene)
        client.send("q", "a")
        await client.settle(one)
        with monkeypatch.context() as patched:
            patched.setattr(InboxWriter, "append", out_of_memory)
            await client.commit()
        await scene.core.committer.step()
        assert await scene.taken() == ["a"]

    play(tmp_path, plot)


def out_of_memory(*_: object) -> None:
    raise MemoryError


def test_while_messages_of_a_transaction_cannot_be_appended_no_more_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        one, two, three = await locked(scene, "1", "2", "3")
        with monkeypatch.context() as patched:
            patched.setattr(InboxWriter, "append", out_of_memory)
            for received, is_accepted in ((one, True), (two, False)):
                client = Client(scene)
                client.send("q", f"after {received.message.sequence}")
                await client.settle(received)
                if is_accepted:
                    await client.commit()
                else:
                    with pytest.raises(RolledBack):
                        await client.commit()
            only_settles = Client(scene)
            await only_settles.settle(three)
            await only_settles.commit()
        await scene.core.committer.step()
        assert await scene.taken() == ["after 1"]

    play(tmp_path, plot)


def test_the_texts_of_a_dead_letter_count_towards_the_bytes_of_a_transaction(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        (one,) = await locked(scene, "1")
        client = Client(scene)
        await client.settle(one, Action.DEAD_LETTER, reason="r" * 3000, description="d" * 50_000)
        assert scene.core.committer.held > 53_000
        client.roll_back()

    play(tmp_path, plot)
