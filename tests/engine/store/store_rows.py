"""Outbox entries for tests: a row is a dict of what matters, the rest is filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oncebus.engine.store import IngestReport, Policy, Requeue, Store
from oncebus.model.messages import Fate, LogRow, Result

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
QUEUE = 7


def entry(rows: Sequence[Mapping[str, Any]], commit: int = 1) -> list[Result]:
    """Return results. Each row has an `entity`; its destination is the same by default."""
    made = []
    for index, row in enumerate(rows):
        fate = Fate(row.get("fate", Fate.DELIVERED))
        full = {
            "position": commit * 1000 + index,
            "commit": commit,
            "catalogue": 1,
            "sequence": index + 1,
            "time": START,
            "window": 0,
            "message_id": f"m{row.get('sequence', index + 1)}",
            "hops": 0,
            "size": 100,
            "head": b"head",
            "body": None if row.get("body_file") else b"body",
            "destination": row["entity"] if fate in (Fate.DELIVERED, Fate.DEAD_LETTERED) else None,
            **row,
            "fate": fate,
        }
        of_row = LogRow(*(full.get(name) for name in LogRow._fields))  # type: ignore[arg-type]
        made.append(Result(of_row, *(full.get(name) for name in Result._fields[1:])))  # type: ignore[arg-type]
    return made


def take(
    store: Store, rows: Sequence[Mapping[str, Any]], policies: Mapping[int, Policy], now: int = START
) -> IngestReport:
    """Ingest rows as the next commit."""
    commit = store.progress.position() + 1
    with store.transaction():
        return store.entries.ingest(entry(rows, commit), commit, commit, policies, now)


def again(requeue: Requeue, sequence: int, **more: Any) -> dict[str, Any]:
    """Return the row that the pipeline makes of a requeued message."""
    message = requeue.message
    origin = {"origin_entity": message.entity, "origin_sequence": message.sequence, "hops": requeue.hops}
    kept = {name: getattr(message, name) for name in ("body_file", "session", "scheduled", "message_id", "size")}
    return {"entity": requeue.target, "sequence": sequence, **kept, **origin, **more}


def come_back(store: Store, policies: Mapping[int, Policy], first_sequence: int, now: int = START) -> None:
    """Requeue messages through the inbox, with numbers from `first_sequence` on."""
    with store.transaction():
        requeues = store.requeues.next_batch(policies, store.progress.position())
    commit = store.progress.position() + 1
    with store.transaction():
        store.requeues.end(requeues, commit)
    rows = [again(each, number, time=now) for number, each in enumerate(requeues, start=first_sequence)]
    take(store, rows, policies, now)


def check_contents(store: Store) -> tuple[int, int]:
    """Compare contents and their counts with the messages. Return how many contents there are, and how many shared."""
    execute = store._connection.execute
    used = Counter(content for (content,) in execute("SELECT content FROM message"))
    assert {abs(content) for content in used} == {id_ for (id_,) in execute("SELECT id FROM content")}
    assert all(number == 1 for content, number in used.items() if content > 0)
    shared = dict(execute("SELECT content, copies FROM shared").fetchall())
    assert shared == {-content: number for content, number in used.items() if content < 0}
    return len(used), len(shared)
