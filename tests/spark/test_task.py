"""What a task does with the Arrow batches of its part: called as Spark's worker calls it, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from oncebus.detection import Policy
from oncebus.ledger import LANES, Ledger, LedgerNotShared, NotPartitioned, Owner, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Stamp
from oncebus.spark.columns import CLOCK, EVER, LATE, PART, WITHOUT_KEY, BadColumn
from oncebus.spark.operator import BadCall, _policy
from oncebus.spark.task import FixedLedger, LedgerPlace, NotInAQuery, Task
from oncebus.values.errors import OncebusError

SECOND = 1_000_000
START = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task(("id",), "at", 10 * SECOND, 0, None, None)


def rows_of(*rows: tuple[str | None, int | None], part: int = 0, **more: pa.Array) -> pa.RecordBatch:
    """Return a batch of rows with an id and a time in seconds."""
    times = [None if second is None else START + timedelta(seconds=second) for _, second in rows]
    columns: dict[str, Any] = {
        "id": pa.array([key for key, _ in rows], pa.string()),
        "at": pa.array(times, pa.timestamp("us", "UTC")),
        PART: pa.array([part] * len(rows), pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def judge(task: Task, *batches: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return the columns that a task yields for these batches."""
    found: dict[str, list[Any]] = pa.Table.from_batches(list(task(iter(batches)))).to_pydict()
    return found


def test_a_task_adds_verdicts_and_removes_helper_columns() -> None:
    found = judge(TASK, rows_of(("a", 0), ("b", 1), ("a", 9)), rows_of(("a", 10), (None, 10)))
    assert list(found) == ["id", "at", "is_duplicate", "original_time"]
    assert found["is_duplicate"] == [False, False, True, False, False]
    assert found["original_time"] == [None, None, START, None, None]
    assert list(TASK(iter([rows_of()]))) == []


def test_a_task_names_the_original_by_its_sequence_number() -> None:
    task = Task(("id",), "at", 10 * SECOND, 0, "number", None)
    found = judge(task, rows_of(("a", 0), ("a", 0), number=pa.array([8, 7])))
    assert (found["is_duplicate"], found["original_sequence"]) == ([True, False], [7, None])


def test_a_task_reports_late_rows_and_rows_without_a_key(tmp_path: Path) -> None:
    ledger = fixed(tmp_path)
    assert judge(Task(("id",), "at", 10 * SECOND, 0, None, ledger), rows_of(("a", 100)))["is_duplicate"] == [False]
    Ledger.open(tmp_path).claim(ledger.generation)
    again = FixedLedger(ledger.location, ledger.identity, Ledger.open(tmp_path).batch().generation, 0, 2**62, 1)
    task = Task(("id",), "at", 10 * SECOND, 0, None, again, reports=True)
    found = judge(task, rows_of(("b", 1), ("a", 101), (None, 101)))
    assert found["is_duplicate"] == [False, True, False]
    assert (found[LATE], found[WITHOUT_KEY]) == ([True, False, False], [False, False, True])


def fixed(folder: Path) -> FixedLedger:
    ledger = Ledger.open(folder)
    identity = ledger.describe_or_check(["id string"], has_secret=True)
    return FixedLedger(ledger.location, identity, ledger.batch().generation, 0, 2**62, 1)


def test_a_task_refuses_a_ledger_that_is_not_the_drivers(tmp_path: Path) -> None:
    here, there = fixed(tmp_path / "here"), fixed(tmp_path / "there")
    wrong = FixedLedger(there.location, here.identity, here.generation, 0, 2**62, 1)
    with pytest.raises(LedgerNotShared, match="it finds another ledger there"):
        judge(Task(("id",), "at", SECOND, 0, None, wrong), rows_of(("a", 0)))


def test_a_task_takes_rows_of_one_part(tmp_path: Path) -> None:
    task = Task(("id",), "at", SECOND, 0, None, fixed(tmp_path))
    with pytest.raises(OncebusError, match=r"A task has rows of parts 0 and 1\. This is a bug in Oncebus"):
        judge(task, rows_of(("a", 0)), rows_of(("b", 0), part=1))
    with pytest.raises(NotPartitioned, match=f"The input has more than {LANES} partitions"):
        judge(task, rows_of(("a", 0), part=LANES))


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        (TASK, rows_of(("a", None)), "The column 'at' is null in 1 of 1 rows of this part"),
        (
            Task(("id",), "at", SECOND, 0, None, None, {"id": "order.id"}, refuses_null_keys=True),
            rows_of((None, 0), ("a", 0)),
            "The column 'order.id' is null in 1 of 2 rows of this part",
        ),
        (
            Task(("id",), "at", "length", 0, None, None),
            rows_of(("a", 0), length=pa.array([0])),
            "The window column 'length' holds 0 microseconds; it must be longer than zero",
        ),
        (
            Task(("id",), "at", "length", 0, None, None),
            rows_of(("a", 0), length=pa.array([-1])),
            "The window column 'length' holds -1 microseconds",
        ),
        (
            Task(("id",), "at", "length", 0, None, None),
            rows_of(("a", 0), length=pa.array([None], pa.int64())),
            "The column 'length' is null in 1 of 1 rows",
        ),
        (
            Task(("id",), "at", SECOND, 0, "n", None),
            rows_of(("a", 0), n=pa.array([None], pa.int64())),
            "The column 'n' is null in 1 of 1 rows of this part",
        ),
        (
            Task(("id",), "time", EVER, 0, None, None),
            rows_of(("a", 0), time=pa.array([1 - 2**63])),
            f"The time column 'time' holds {1 - 2**63} microseconds since 1970",
        ),
        (
            Task(("id",), "time", EVER, 0, None, None),
            rows_of(("a", 0), time=pa.array([2**61])),
            f"The time column 'time' holds {2**61} microseconds since 1970; it must be within 36,000 years of 1970",
        ),
    ],
)
def test_values_that_detection_cannot_use(task: Task, rows: pa.RecordBatch, message: str) -> None:
    with pytest.raises(BadColumn) as raised:
        judge(task, rows)
    assert str(raised.value).startswith(message)


def test_a_place_travels_as_text_and_is_of_use_in_a_query_only() -> None:
    place = LedgerPlace("/ledger", "id", "ab", Owner.this_process(), 3, has_ended=False, parts=4)
    assert LedgerPlace.from_json(place.to_json()) == place
    with pytest.raises(NotInAQuery, match="Spark gave this task no batch number"):
        place.writer()


def test_policies() -> None:
    assert _policy("last", "first", is_streaming=False) == Policy(keeps_last=True, extends=False)
    assert _policy("first", "last", is_streaming=True) == Policy(keeps_last=False, extends=True)
    with pytest.raises(BadCall, match="keep='last' needs a batch DataFrame"):
        _policy("last", "first", is_streaming=True)
    with pytest.raises(BadCall, match="window_from is 'never'; it must be 'first' or 'last'"):
        _policy("first", "never", is_streaming=False)


def test_a_task_lists_its_ledger_twice_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing is the dearest request to an object store. The first batch may list more: it claims the generation."""
    folder = str(tmp_path / "ledger")
    identity = Ledger.open(folder).describe_or_check(["id string"], has_secret=True)
    place = LedgerPlace(folder, identity, "a" * 32, Owner.this_process(), 0, has_ended=True, parts=1)
    task = Task(("id",), "at", 10 * SECOND, 0, None, place)
    listings = 0
    names = LocalStorage.names

    def count(storage: LocalStorage) -> dict[str, Stamp]:
        nonlocal listings
        listings += 1
        return names(storage)

    monkeypatch.setattr(LocalStorage, "names", count)
    for batch in range(3):
        # Only inside a query does Spark tell a task its batch.
        writer = Writer(place.token, "query", place.owner)
        monkeypatch.setattr(LedgerPlace, "writer", lambda _, writer=writer, batch=batch: (writer, batch))
        rows = pa.RecordBatch.from_pydict(
            {
                "id": [f"{batch}", "again"],
                "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
                PART: pa.array([0, 0], pa.int32()),
                CLOCK: pa.array([SECOND * batch] * 2, pa.int64()),
            }
        )
        listings = 0
        (result,) = task(iter([rows]))
        assert result.column("is_duplicate").to_pylist() == [False, batch > 0]
    assert listings == 2
