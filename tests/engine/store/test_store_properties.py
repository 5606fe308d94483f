"""A queue and a session queue against a model of a few lines, over crashes at any step.

What is sent, and what returns because it fell due or was resubmitted, goes through an inbox and is taken later.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oncebus.engine.store import (
    Action,
    EntryRefused,
    Message,
    Mode,
    Outcome,
    Requeue,
    SessionCannotBeLocked,
    SessionLock,
    SessionLockLost,
    Settlement,
    State,
    Store,
    SubQueue,
)
from tests.engine.store.store_model import LOCK, PLAIN, POLICIES, SESSIONS, Known, Model
from tests.engine.store.store_rows import SECOND, again, check_contents, entry
from tests.postgres_server import PostgresServer
from tests.properties import examples


class Undone(Exception):
    """Ends a transaction before it is durable."""


class StoreMachine(Model, RuleBasedStateMachine):
    def __init__(self) -> None:
        Model.__init__(self)
        RuleBasedStateMachine.__init__(self)
        self.folder = Path(tempfile.mkdtemp(prefix="store", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.path = self.folder / "0"
        self.reopened = 0
        self.tokens = random.Random(0)
        self.store = self.opened()
        # Messages that are in the inbox and not yet reported to the store.
        self.untold: tuple[list[Requeue], int] | None = None
        # Requeue begins when everything is ingested that an earlier run may have appended.
        self.left_behind = 0
        self.has_begun = False

    def opened(self) -> Store:
        return Store.open(self.path, random=self.tokens.randbytes)

    def teardown(self) -> None:
        try:
            self.take(99)
            self.requeue(9, "tell")
            self.take(99)
            if not any(message.returns for message in self.known.values()):
                assert self.store._tables.origins.count() == 0
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    # Steps

    @rule(
        rows=st.lists(
            st.tuples(
                st.sampled_from([PLAIN, SESSIONS]),
                st.sampled_from("abcA"),
                st.sampled_from([None, 5, 15, 60]),
                st.sampled_from([None, None, 1, 1, 4]),
            ),
            max_size=5,
        )
    )
    def send(self, rows: list[tuple[int, str, int | None, int | None]]) -> None:
        def later(seconds: int | None) -> int | None:
            return None if seconds is None else self.now + seconds * SECOND

        given: list[dict[str, Any]] = []
        for entity, session, seconds, due in rows:
            row = {"session": session, "expires": later(seconds), "scheduled": later(due)}
            given.append({"entity": entity, "sequence": self.number(entity), "time": self.now, **row})
        self.append(given)

    @rule(commits=st.integers(1, 3))
    def take(self, commits: int) -> None:
        for commit in range(self.commit + 1, min(self.commit + commits, self.appended) + 1):
            rows, self.commit = self.inbox.pop(commit), commit
            for row in rows:
                self.arrive(row)
            with self.store.transaction():
                self.store.entries.ingest(entry(rows, commit), commit, commit, POLICIES, self.now)
            with pytest.raises(EntryRefused), self.store.transaction():
                self.store.entries.ingest(entry(rows, commit), commit, commit, POLICIES, self.now)
        self.pass_time()

    def ingest(self, rows: list[tuple[int, str, int | None, int | None]]) -> None:
        self.send(rows)
        self.take(99)

    @rule()
    def fall_due(self) -> None:
        with self.store.transaction():
            while self.store.scheduled.send_due(POLICIES, self.now, limit=2).more:
                pass
        for message in list(self.known.values()):
            if message.waits and message.scheduled is not None and message.scheduled <= self.now:
                self.put(replace(message, waits=False, returns=True))

    @precondition(lambda self: any(message.waits or message.returns for message in self.known.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from([m for m in self.known.values() if m.waits or m.returns]))
        with self.store.transaction():
            outcomes = self.store.scheduled.cancel(message.entity, [message.sequence])
        assert outcomes == [Outcome.DONE if message.waits else Outcome.MESSAGE_NOT_FOUND]
        if message.waits:
            self.end(message)

    @precondition(lambda self: any(message.dead for message in self.known.values()))
    @rule(data=st.data())
    def resubmit(self, data: st.DataObject) -> None:
        self.sweep()
        message = data.draw(st.sampled_from([message for message in self.known.values() if message.dead]))
        with self.store.transaction():
            outcomes = self.store.dead_letters.resubmit(
                message.entity, [message.sequence], POLICIES[message.entity], self.now
            )
        is_free = message.token is None and not message.returns
        assert outcomes == [Outcome.DONE if is_free else Outcome.MESSAGE_NOT_FOUND]
        if is_free:
            expires = None if message.expires is None else self.now + message.expires - message.enqueued
            self.put(replace(message, returns=True, expires=expires))

    @rule(
        sessions=st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
        limit=st.integers(1, 5),
        then=st.sampled_from(["take and crash", "take", "crash", "nothing", "tell"]),
    )
    def schedule_and_requeue(self, sessions: list[str], limit: int, then: str) -> None:
        entities = (PLAIN, SESSIONS)
        self.ingest([(entities[n % 2], session, None, 2 - n // 2) for n, session in enumerate(sessions)])
        self.wait(2)
        self.requeue(limit, then)

    @precondition(lambda self: self.commit >= self.left_behind)
    @rule(limit=st.integers(1, 5), then=st.sampled_from(["tell", "take", "crash", "nothing"]))
    def requeue(self, limit: int, then: str) -> None:
        """Append due or resubmitted messages with new numbers. Report them to the store at once, later, or never."""
        self.tell()
        self.fall_due()
        with self.store.transaction():
            if not self.has_begun:
                self.store.requeues.begin(self.appended)
                self.has_begun = True
            batch = self.store.requeues.next_batch(POLICIES, self.appended, limit)
        for entity in POLICIES:
            returning = [message for message in self.known.values() if message.returns and message.entity == entity]
            returning.sort(key=lambda message: (message.scheduled or 0, message.sequence))
            chosen = [each.message.sequence for each in batch if each.message.entity == entity]
            assert chosen == [message.sequence for message in returning][: len(chosen)]
            assert chosen or not returning or limit == 1
        if not batch:
            return
        kept = {"time": self.now}
        self.append(
            [
                again(
                    each, self.number(each.target), expires=each.message.expires, session=each.message.session, **kept
                )
                for each in batch
            ]
        )
        self.untold = batch, self.appended
        if then == "tell":
            self.tell()
        if "take" in then:
            self.take(99)
        if "crash" in then:
            self.crash("copy")

    @rule()
    def tell(self) -> None:
        if self.untold is None:
            return
        batch, commit = self.untold
        with self.store.transaction():
            self.store.requeues.end(batch, commit)
        self.untold = None
        for each in batch:
            # It may have arrived already.
            if (message := self.known.get((each.message.entity, each.message.sequence))) is not None:
                self.end(message)

    @rule(seconds=st.sampled_from([1, 4, 9, 10, 20]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.pass_time()

    @rule()
    def sweep(self) -> None:
        with self.store.transaction():
            while self.store.locks.expire(POLICIES, self.now, limit=2).more:
                pass
            while self.store.messages.expire(POLICIES, self.now, limit=2).more:
                pass

    @rule(count=st.integers(1, 4), mode=st.sampled_from(Mode), dead=st.booleans())
    def receive(self, count: int, mode: Mode, dead: bool) -> None:
        # Dead letters are only seen once they have been moved there: by a receiver of the main queue or a sweep.
        self.sweep()
        sub_queue = SubQueue.DEAD_LETTER if dead else SubQueue.MAIN
        with self.store.transaction():
            got = self.store.messages.receive(PLAIN, count, mode, POLICIES[PLAIN], self.now, sub_queue=sub_queue)
        self.check_received(got, self.ready(PLAIN, None, dead)[:count], mode, self.now + LOCK)

    @rule(count=st.integers(1, 4), mode=st.sampled_from(Mode))
    def receive_without_a_sweep(self, count: int, mode: Mode) -> None:
        with self.store.transaction():
            got = self.store.messages.receive(PLAIN, count, mode, POLICIES[PLAIN], self.now)
        self.check_received(got, self.ready(PLAIN, None, False)[:count], mode, self.now + LOCK)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), count=st.integers(1, 4), mode=st.sampled_from(Mode))
    def receive_in_a_session(self, data: st.DataObject, count: int, mode: Mode) -> None:
        session = data.draw(st.sampled_from(sorted(self.locks)))
        token, until = self.locks[session]
        lock = SessionLock(SESSIONS, session, token, until)
        with self.store.transaction():
            got = self.store.messages.receive(SESSIONS, count, mode, POLICIES[SESSIONS], self.now, lock)
        self.check_received(got, self.ready(SESSIONS, session, False)[:count], mode, until)

    def check_received(self, got: list[Message], expected: list[Known], mode: Mode, until: int) -> None:
        assert [message.sequence for message in got] == [message.sequence for message in expected]
        # No message that was accepted before is still in the pipeline.
        on_their_way = [(row["entity"], row["sequence"]) for rows in self.inbox.values() for row in rows]
        assert not [row for row in on_their_way for each in got if row[0] == each.entity and row[1] < each.sequence]
        for message, known in zip(got, expected, strict=True):
            # Attempts in a dead-letter queue do not count.
            assert message.deliveries == known.deliveries + (known.dead is None)
            assert (message.message_id, message.reason) == (known.name, known.dead)
            assert message.session == known.session
            if mode is Mode.RECEIVE_AND_DELETE:
                self.end(known)
                continue
            assert message.locked_until == until
            own_end = None if self.session_of(known) is not None else until
            self.put(replace(known, token=message.token, until=own_end, deliveries=message.deliveries))

    @precondition(lambda self: any(message.token for message in self.known.values()))
    @rule(data=st.data(), action=st.sampled_from(Action))
    def settle(self, data: st.DataObject, action: Action) -> None:
        held = [message for message in self.known.values() if message.token]
        message = data.draw(st.sampled_from(held))
        assert message.token is not None
        settlement = Settlement(action, message.token, reason="because")
        with self.store.transaction():
            policy = POLICIES[message.entity]
            outcomes = self.store.locks.settle(message.entity, [settlement, settlement], policy, self.now)
        if action is Action.DEAD_LETTER and message.dead is not None:
            assert outcomes == [Outcome.ALREADY_DEAD_LETTERED] * 2
            return
        assert outcomes == [Outcome.DONE, Outcome.MESSAGE_LOCK_LOST]
        self.stale.append(message.token)
        free = replace(message, token=None, until=None)
        match action:
            case Action.COMPLETE:
                self.end(message)
            case Action.ABANDON:
                self.put_back(message)
            case Action.RELEASE:
                self.put(replace(free, deliveries=message.deliveries - (message.dead is None)))
            case Action.DEFER:
                self.put(replace(free, deferred=True))
            case Action.DEAD_LETTER:
                self.put(replace(free, dead="because", deferred=False, deliveries=message.deliveries - 1))
        self.pass_time()

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), action=st.sampled_from(Action))
    def settle_too_late(self, data: st.DataObject, action: Action) -> None:
        token = data.draw(st.sampled_from(self.stale))
        with self.store.transaction():
            for entity, policy in POLICIES.items():
                (outcome,) = self.store.locks.settle(entity, [Settlement(action, token)], policy, self.now)
                assert outcome in (Outcome.MESSAGE_LOCK_LOST, Outcome.SESSION_LOCK_LOST)

    @precondition(lambda self: any(message.until for message in self.known.values()))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from([message for message in self.known.values() if message.until]))
        assert message.token is not None
        with self.store.transaction():
            answer = self.store.locks.renew(message.entity, [message.token], POLICIES[message.entity], self.now)
        assert answer == [self.now + LOCK]
        self.put(replace(message, until=self.now + LOCK))

    @precondition(lambda self: any(m.deferred and m.entity == PLAIN for m in self.known.values()))
    @rule(data=st.data(), mode=st.sampled_from(Mode))
    def receive_deferred(self, data: st.DataObject, mode: Mode) -> None:
        deferred = [m for m in self.known.values() if m.deferred and m.entity == PLAIN]
        message = data.draw(st.sampled_from(deferred))
        sub_queue = SubQueue.MAIN if message.dead is None else SubQueue.DEAD_LETTER
        with self.store.transaction():
            got = self.store.messages.receive_deferred(
                PLAIN, [message.sequence, 10**9], mode, POLICIES[PLAIN], self.now, sub_queue=sub_queue
            )
        self.check_received(got, [] if message.token or message.returns else [message], mode, self.now + LOCK)

    @rule(session=st.sampled_from([None, "a", "A", "b", ""]))
    def accept(self, session: str | None) -> None:
        if session is not None and session.upper() in self.locks:
            with pytest.raises(SessionCannotBeLocked), self.store.transaction():
                self.store.sessions.accept(SESSIONS, session, POLICIES[SESSIONS], self.now)
            return
        with self.store.transaction():
            lock = self.store.sessions.accept(SESSIONS, session, POLICIES[SESSIONS], self.now)
        free = [message for message in self.ready(SESSIONS, None, False) if self.session_of(message) not in self.locks]
        expected = session.upper() if session is not None else (self.session_of(free[0]) if free else None)
        if expected is None:
            assert lock is None
        else:
            assert lock is not None
            assert (lock.session.upper(), lock.locked_until) == (expected, self.now + LOCK)
            assert session in (None, lock.session)
            self.locks[expected] = lock.token, lock.locked_until

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), renewed=st.booleans())
    def renew_or_release(self, data: st.DataObject, renewed: bool) -> None:
        session = data.draw(st.sampled_from(sorted(self.locks)))
        lock = SessionLock(SESSIONS, session, *self.locks[session])
        with self.store.transaction():
            if renewed:
                renewed_lock = self.store.sessions.renew(lock, POLICIES[SESSIONS], self.now)
                self.locks[session] = renewed_lock.token, renewed_lock.locked_until
            else:
                self.store.sessions.release(lock, POLICIES[SESSIONS])
        if not renewed:
            self.free(session)
            self.pass_time()
            with pytest.raises(SessionLockLost), self.store.transaction():
                self.store.sessions.renew(lock, POLICIES[SESSIONS], self.now)

    @rule(how=st.sampled_from(["close", "copy", "copy inside a transaction", "failure"]))
    def crash(self, how: str) -> None:
        """Crash. The changes of an unfinished transaction are lost, all others are there."""
        if how == "failure":
            with suppress(Undone), self.store.transaction():
                self.change_much()
                raise Undone
            return
        if how == "copy inside a transaction":
            with suppress(Undone), self.store.transaction():
                self.change_much()
                self.copy()
                raise Undone
        elif how == "copy":
            self.copy()
        self.store.close()
        self.untold, self.left_behind, self.has_begun = None, self.appended, False
        if how != "close":
            self.reopened += 1
            self.path = self.folder / str(self.reopened)
        self.store = self.opened()

    def change_much(self) -> None:
        self.store.entries.ingest(
            entry([{"entity": PLAIN, "sequence": 10**6}]), self.commit + 1, self.commit + 1, POLICIES, 0
        )
        self.store.messages.receive(PLAIN, 2, Mode.RECEIVE_AND_DELETE, POLICIES[PLAIN], self.now)
        self.store.messages.receive(PLAIN, 9, Mode.PEEK_LOCK, POLICIES[PLAIN], self.now)
        self.store.sessions.accept(SESSIONS, None, POLICIES[SESSIONS], self.now)
        self.store.messages.delete_oldest(SESSIONS, 2**62, 9)
        self.store.scheduled.send_due(POLICIES, 2**62)
        self.store.requeues.end(self.store.requeues.next_batch(POLICIES, self.appended), self.appended + 1)
        self.store.messages.expire(POLICIES, 2**62)

    def copy(self) -> None:
        target = self.folder / str(self.reopened + 1)
        for file in self.folder.glob(f"{self.path.name}*"):
            if file.name in (self.path.name, f"{self.path.name}-wal"):
                shutil.copy(file, self.folder / file.name.replace(self.path.name, target.name, 1))

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self) -> None:
        for entity in POLICIES:
            seen = {
                message.sequence: message
                for sub_queue in SubQueue
                for message in self.store.messages.peek(entity, 0, 1000, self.now, sub_queue=sub_queue)
            }
            expected = {m.sequence: m for m in self.known.values() if m.entity == entity}
            assert not {(entity, sequence) for sequence in seen} & self.ended
            # Expired messages are shown nowhere, even before they are swept.
            hidden = {m.sequence for m in expected.values() if m.expires is not None and m.expires <= self.now}
            assert set(expected) - hidden <= set(seen) <= set(expected)
            for sequence, message in seen.items():
                assert message.deliveries == expected[sequence].deliveries
                # An expired deferred message is moved when something finds it.
                if message.sub_queue == SubQueue.MAIN and expected[sequence].dead is None:
                    assert (message.state is State.DEFERRED) == expected[sequence].deferred
                    is_scheduled = expected[sequence].waits or expected[sequence].returns
                    assert (message.state is State.SCHEDULED) == is_scheduled

    @invariant()
    def the_counts_are_those_of_the_messages(self) -> None:
        # Inside a transaction that fails: this check must not change the lazy state of the store.
        with suppress(Undone), self.store.transaction():
            while (
                self.store.locks.expire(POLICIES, self.now).more or self.store.messages.expire(POLICIES, self.now).more
            ):
                pass
            for entity in POLICIES:
                own = [message for message in self.known.values() if message.entity == entity]
                counts = self.store.entities.counts(entity)
                assert counts.dead_letter == sum(m.dead is not None for m in own)
                assert counts.deferred == sum(m.deferred and m.dead is None for m in own)
                assert counts.scheduled == sum((m.waits or m.returns) and m.dead is None for m in own)
                assert counts.active + counts.scheduled == sum(not m.deferred and m.dead is None for m in own)
                assert counts.transfer == 0
                assert self.store.entities.size(entity) == 100 * len(own)
            raise Undone

    @invariant()
    def each_message_has_its_content_and_nothing_is_left_over(self) -> None:
        check_contents(self.store)

    @initialize()
    def start(self) -> None:
        self.ingest([(PLAIN, "a", None, None), (SESSIONS, "a", None, None), (SESSIONS, "b", None, 4)])
        self.send([(PLAIN, "a", None, 1), (SESSIONS, "a", 15, None)])


class PostgresMachine(StoreMachine):
    """The same in PostgreSQL, where a crash is a connection that ends."""

    url = ""

    def opened(self) -> Store:
        from oncebus.engine.postgres.store import open_store

        return open_store(self.url, random=self.tokens.randbytes)

    def copy(self) -> None:
        self.store.close()


@pytest.mark.slow
def test_the_same_in_postgres(postgres: PostgresServer) -> None:
    class Machine(PostgresMachine):
        def __init__(self) -> None:
            self.url = postgres.make_schema()
            super().__init__()

    run_state_machine_as_test(
        Machine, settings=examples(8, stateful_step_count=20, suppress_health_check=list(HealthCheck))
    )


TestStore = StoreMachine.TestCase
TestStore.settings = examples(40, stateful_step_count=30, suppress_health_check=list(HealthCheck))
