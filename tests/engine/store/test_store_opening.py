from __future__ import annotations

import errno
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from oncebus.engine.store import Mode, Policy, Store, StoreFull, StoreInUse, StoreMismatch, SubQueue
from oncebus.engine.store.sql.schema import VERSION
from oncebus.model.entities.names import session_key
from tests.engine.store.conftest import Stores
from tests.engine.store.store_rows import QUEUE, START, take

POLICIES = {QUEUE: Policy()}


def test_a_new_store_begins_at_its_start_and_continues_where_it_was(open_store: Stores) -> None:
    store = open_store(start=41)
    assert store.progress.position() == 41
    take(store, [{"entity": QUEUE}], POLICIES)
    store.close()
    store = open_store()
    assert (store.progress.position(), store.entities.size(QUEUE), store.entities.counts(QUEUE).new) == (42, 100, 1)


def test_locks_from_before_a_restart_expire(open_store: Stores) -> None:
    store = open_store()
    take(store, [{"entity": QUEUE}], POLICIES)
    with store.transaction():
        (message,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START)
    store.close()
    store = open_store()
    with store.transaction():
        assert store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), (message.locked_until or 0) - 1) == []
        (again,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), message.locked_until or 0)
    assert again.deliveries == 2


def test_a_lock_that_expired_in_a_failed_transaction_expires_again(store: Store) -> None:
    take(store, [{"entity": QUEUE}], POLICIES)
    with store.transaction():
        (message,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START)
    end = message.locked_until or 0
    for failing in (True, False):
        with suppress(ZeroDivisionError), store.transaction():
            # The second call finds no lock any more, and may remember that.
            (again,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(lock_duration=2**40), end)
            assert store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), end) == []
            if failing:
                raise ZeroDivisionError
    assert again.deliveries == 2


def test_ids_may_hold_any_character(store: Store) -> None:
    ids = ["\x00", "a\x00b", "\x01", "\x010", "\x00\x01", "ß\U0001f600"]
    rows = [{"entity": QUEUE, "message_id": each, "session": each, "partition_key": each} for each in ids]
    take(store, rows, {QUEUE: Policy(requires_session=True)})
    found = store.messages.peek(QUEUE, 0, 9, START)
    assert [(each.message_id, each.session, each.partition_key) for each in found] == [(each,) * 3 for each in ids]
    assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 9, "a\x00b")[0] == [2]
    assert store.sessions.names(QUEUE, 9) == sorted(ids)


def test_sessions_are_compared_in_the_database_as_everywhere(store: Store) -> None:
    spellings = ["Straße", "ÇELİK", "ǆ", "ŉ", "ᾳ", "ß", "ſ", "ı", "µ", "ａ", "𐐨"]
    take(store, [{"entity": QUEUE, "session": each} for each in spellings], POLICIES)
    for number, each in enumerate(spellings, 1):
        assert store.messages.search(QUEUE, SubQueue.MAIN, 0, 99, session=each.lower())[0] == [
            at for at, other in enumerate(spellings, 1) if session_key(other) == session_key(each.lower())
        ]
        assert number in store.messages.search(QUEUE, SubQueue.MAIN, 0, 99, session=each)[0]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "store")
    with pytest.raises(StoreInUse, match="open in another process"):
        Store.open(tmp_path / "store")
    first.close()


@pytest.mark.parametrize("version", [VERSION + 1, VERSION - 1, 0])
def test_another_version_is_refused_with_what_to_do(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store"
    Store.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version}")
    database.close()
    with pytest.raises(StoreMismatch, match="that wrote it"):
        Store.open(path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    other, text = tmp_path / "other", tmp_path / "text"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    text.write_text("not a database, and long enough to be looked at" * 20)
    for path in (other, text):
        with pytest.raises(StoreMismatch, match="not a delivery store"):
            Store.open(path)


def test_a_full_disk_changes_nothing_and_a_retry_works(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    take(store, [{"entity": QUEUE, "sequence": 1}], POLICIES)
    execute = store._connection.execute
    pages = execute("PRAGMA page_count").fetchone()[0]
    execute(f"PRAGMA max_page_count = {pages}")
    large = [{"entity": QUEUE, "sequence": number, "body": b"x" * 50_000} for number in range(2, 30)]
    for _ in range(2):
        with pytest.raises(StoreFull, match="has no room"):
            take(store, large, POLICIES)
        assert (store.progress.position(), store.entities.counts(QUEUE).active, store.entities.size(QUEUE)) == (
            1,
            1,
            100,
        )
    with store.transaction():
        assert len(store.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, Policy(), START)) == 1
    execute("PRAGMA max_page_count = 1000000")
    take(store, large, POLICIES)
    assert store.entities.counts(QUEUE).active == 29
    store.close()


def test_a_full_disk_elsewhere_in_the_transaction_has_the_same_effect(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with pytest.raises(StoreFull), store.transaction():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="other"), store.transaction():
        raise OSError(errno.EACCES, "other")
    store.close()


def test_no_statement_scans_all_messages(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    rows = [{"entity": QUEUE, "sequence": number, "expires": START + number} for number in range(1, 50)]
    take(store, rows, POLICIES)
    statements: list[str] = []
    database = store._connection._database  # type: ignore[attr-defined]
    database.set_trace_callback(statements.append)
    policy = Policy(requires_session=True)
    with store.transaction():
        messages = store.messages.receive(QUEUE, 5, Mode.PEEK_LOCK, Policy(), START)
        store.locks.renew(QUEUE, [message.token or b"" for message in messages], Policy(), START)
        store.messages.receive_deferred(QUEUE, [1], Mode.PEEK_LOCK, Policy(), START)
        store.sessions.accept(QUEUE, None, policy, START)
        store.locks.expire(POLICIES, START + 2**40)
        store.messages.expire(POLICIES, START + 3)
        store.scheduled.send_due(POLICIES, START)
        store.requeues.next_batch(POLICIES, 1)
        store.messages.peek(QUEUE, 3, 5, START)
        store.messages.peek(QUEUE, 3, 5, START, "s")
        store.sessions.names(QUEUE, 5)
        store.duplicates.page(QUEUE, "m1")
    take(store, [{"entity": QUEUE, "sequence": 99}], POLICIES)
    store.close()
    store = Store.open(tmp_path / "store")
    looked = [each for each in statements if each.startswith(("SELECT", "UPDATE", "DELETE"))]
    assert len(looked) > 30
    for statement in looked:
        plan = [row[3] for row in store._connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not [step for step in plan if step.startswith("SCAN")], (statement, plan)
        if "JOIN content" in statement and "c.session" not in statement:
            assert "USE TEMP B-TREE FOR ORDER BY" not in plan, (statement, plan)
    store.close()
