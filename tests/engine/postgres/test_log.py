from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from oncebus.engine.inbox import Row, RowsRefused
from oncebus.engine.postgres.log import CatalogueStale, ClockWrong, LogBusy, PostgresLog
from oncebus.engine.postgres.schema import check_schema
from oncebus.model.messages import NOBODY, PARTITION_SHIFT
from oncebus.postgres import DatabaseAway, Link
from tests.postgres_server import PostgresServer

QUEUE, OTHER = 7, 9
SHARDS = 4


def row(entity: int = QUEUE, partition: int = 0, **more: Any) -> Row:
    full: dict[str, Any] = {
        "entity": entity,
        "sequence": (partition << PARTITION_SHIFT) + 12345,
        "time": time.time_ns() // 1000,
        "window": 0,
        "message_id": "m",
        "hops": 0,
        "size": 4,
        "head": b"head",
        **more,
    }
    return full  # type: ignore[return-value]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.make_schema()
    link = Link(url)
    check_schema(link, 0)
    link.close()
    return url


@pytest.fixture
def logs(url: str) -> Iterator[list[PostgresLog]]:
    opened = [PostgresLog(url, SHARDS) for _ in range(2)]
    yield opened
    for each in opened:
        each.close()


def stored(log: PostgresLog, first: int = 1) -> list[dict[str, Any]]:
    with closing(log.reader()) as reader:
        rows = [row._asdict() for row in reader.read(first, reader.durable())]
    return sorted(rows, key=lambda row: int(row["position"]))


def test_gateways_share_one_order(logs: list[PostgresLog]) -> None:
    sent = [[row(), row(OTHER)], [row(), row(QUEUE, 3), row()], [row(QUEUE, 3)], [row(OTHER)]]
    commits = [logs[number % 2].append(rows, 0) for number, rows in enumerate(sent)]
    assert commits == [1, 2, 3, 4]
    found = stored(logs[0])
    assert [each["position"] for each in found] == list(range(7))
    assert [each["commit"] for each in found] == [1, 1, 2, 2, 2, 3, 4]
    assert [(each["entity"], each["sequence"]) for each in found] == [
        (QUEUE, 1),
        (OTHER, 1),
        (QUEUE, 2),
        (QUEUE, (3 << PARTITION_SHIFT) + 1),
        (QUEUE, 3),
        (QUEUE, (3 << PARTITION_SHIFT) + 2),
        (OTHER, 2),
    ]
    # The callers learn the numbers and times that hold.
    flat = [each for rows in sent for each in rows]
    assert [(each["sequence"], each["time"]) for each in flat] == [(each["sequence"], each["time"]) for each in found]


def test_times_never_go_back(logs: list[PostgresLog]) -> None:
    now = time.time_ns() // 1000
    logs[0].append([row(time=now + 500_000)], 0)
    behind = [row(time=now - 100_000), row(time=now - 99_990)]
    logs[1].append(behind, 0)
    assert [each["time"] for each in stored(logs[0])] == [now + 500_000, now + 500_000, now + 500_010]
    assert behind[1]["time"] == now + 500_010


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wrong_clock_is_refused_and_changes_nothing(logs: list[PostgresLog], hours: int) -> None:
    with pytest.raises(ClockWrong, match="microseconds"):
        logs[0].append([row(time=time.time_ns() // 1000 + hours * 3_600_000_000)], 0)
    assert not logs[0].is_torn
    assert logs[0].append([row()], 0) == 1
    assert [each["sequence"] for each in stored(logs[0])] == [1]


def test_a_pulse_takes_no_number_and_its_clock_does_not_count(logs: list[PostgresLog]) -> None:
    assert logs[0].append([row(NOBODY, time=0, sequence=0)], 0) == 1
    assert logs[0].append([row()], 0) == 2
    assert [(each["entity"], each["sequence"]) for each in stored(logs[0])] == [(NOBODY, 0), (QUEUE, 1)]


def test_a_stale_catalogue_is_refused_and_changes_nothing(logs: list[PostgresLog], url: str) -> None:
    link = Link(url)
    link.execute("UPDATE head SET catalogue = 5")
    link.close()
    with pytest.raises(CatalogueStale, match="version 4 was checked, version 5 holds"):
        logs[0].append([row()], 4)
    assert logs[0].append([row()], 5) == 1
    assert stored(logs[0])[0]["catalogue"] == 5


def test_rows_that_cannot_be_stored_are_refused(logs: list[PostgresLog]) -> None:
    with pytest.raises(RowsRefused):
        logs[0].append([row(size=None)], 0)
    assert logs[0].append([row()], 0) == 1


class LosesAnswers(Link):
    """A connection that is cut at a step: before a statement is run, or after it was and before its answer."""

    cut: str | None = None

    def execute(self, statement: str, values: Any = ()) -> Any:
        cut, self.cut = (self.cut, None) if "append_rows" in statement else (None, self.cut)
        answer = None if cut == "before" else super().execute(statement, values)
        if cut is not None:
            self.close()
            raise DatabaseAway("cut")
        return answer


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_lost_answer_is_found_by_its_ticket(logs: list[PostgresLog], url: str, cut: str) -> None:
    link = LosesAnswers(url)
    log = logs[0]
    log._link.close()
    log._link = link
    log.append([row()], 0)
    link.cut = cut
    sent = row()
    if cut == "after":
        assert log.append([sent], 0) == 2
        assert sent["sequence"] == 2
    else:
        with pytest.raises(LogBusy, match="not accepted"):
            log.append([sent], 0)
    assert not log.is_torn
    following = log.append([row()], 0)
    assert following == (3 if cut == "after" else 2)
    assert [each["sequence"] for each in stored(log)] == list(range(1, following + 1))


def test_an_append_that_was_given_up_can_never_come(logs: list[PostgresLog], url: str) -> None:
    link = Link(url)
    assert link.execute("SELECT * FROM resolve_append('g', 3)").fetchone() == (None,) * 6
    late = "SELECT * FROM append_rows('g', ?, 0, NULL, NULL, 1, '{}', '{}', '{}', '', 0)"
    for turn in (2, 3):
        with pytest.raises(Exception, match="comes too late"):
            link.execute(late, (turn,))
    assert link.value("SELECT last_commit FROM head") == 0
    assert (link.execute(late, (4,)).fetchone() or ())[0] == 1
    link.close()


def test_a_database_that_is_away_refuses_and_comes_back(postgres: PostgresServer, logs: list[PostgresLog]) -> None:
    log = logs[0]
    log.append([row()], 0)
    postgres.stop()
    try:
        with pytest.raises(LogBusy):
            log.append([row()], 0)
        # Nobody knows: body files that the rows name must stay.
        torn = [log.is_torn]
        with pytest.raises(LogBusy):
            log.append([row()], 0)
    finally:
        postgres.start()
    assert log.append([row()], 0) == 2
    assert [*torn, log.is_torn] == [True, False]
    assert [each["sequence"] for each in stored(log)] == [1, 2]


def test_a_missing_commit_is_told(logs: list[PostgresLog]) -> None:
    for _ in range(3):
        logs[0].append([row()], 0)
    logs[0].delete_below(2)
    assert [each["commit"] for each in stored(logs[0], 3)] == [3]
    with pytest.raises(Exception, match=r"Commit 1 of the log .* is missing"):
        stored(logs[0])


def test_a_reader_waits_and_plans(logs: list[PostgresLog]) -> None:
    reader = logs[0].reader()
    reader.wait(0, 0)
    assert reader.plan(0, 100, 10**6) == 0
    for _ in range(5):
        logs[0].append([row(), row()], 0)
    reader.wait(4, 60)
    assert reader.plan(0, 5, 10**6) == 2
    assert reader.plan(2, 100, 1) == 3
    assert reader.plan(0, 100, 10**6) == 5
    assert reader.rows(1, 5) == 10
    assert reader.length(3) == logs[0].last_bytes
    shard = list(reader.read(1, 5, shards=[0]))
    everything = list(reader.read(1, 5))
    assert len(everything) == 10
    assert len(shard) <= 10
    reader.close()
