from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from oncebus.ledger import Ledger, Owner, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Stamp
from oncebus.spark.columns import CLOCK, PART
from oncebus.spark.task import LedgerPlace, Task

SECOND = 1_000_000


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
