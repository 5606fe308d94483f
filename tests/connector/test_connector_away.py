"""The broker is away while streams run. They go on by themselves when it is back, and nothing is lost or twice.

`test_connector_sending` and `test_connector_intake` have the errors of a broker that stays away, without Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus.spark import detect_duplicates
from tests.programs.serve.programs import until
from tests.spark.streams import rows_in

from .bus import DETECTS, QUICK, Bus, messages, stream, text, texts

LIMIT = 240.0
ROWS = 10
"""The most rows of a micro-batch. There are several of them, so the broker goes away in the middle."""


class Streams:
    """A stream from a queue through detection into a table, and one from files to another queue."""

    def __init__(self, session: SparkSession, bus: Bus, folder: Path, name: str) -> None:
        self.bus, self.folder = bus, folder
        self.source = bus.queue(f"{name}-source", **QUICK)
        self.target = bus.queue(f"{name}-target", **DETECTS, **QUICK)
        (folder / "in").mkdir()
        self._session = session
        self._files = 0
        self.queries: list[StreamingQuery] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both for the block, with the default of `retry_timeout`."""
        checked = detect_duplicates(
            stream(self._session, self.bus, self.folder, queue=self.source, max_rows=ROWS),
            key="message_id",
            time="enqueued_time",
            window="1 hour",
            sequence="sequence_number",
            ledger=str(self.folder / "ledger"),
        )
        table = checked.writeStream.format("parquet").option("path", str(self.folder / "table"))
        lines = self._session.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder / "in"))
        queue = lines.selectExpr("value as body").writeStream.format("servicebus")
        writers = {"table": table, "queue": queue.options(**self.bus.options(queue=self.target))}
        try:
            for name, writer in writers.items():
                checkpoint = str(self.folder / f"checkpoint-{name}")
                self.queries.append(writer.option("checkpointLocation", checkpoint).start())
            yield
        finally:
            for query in self.queries:
                query.stop()

    def write(self, numbers: Iterable[int]) -> None:
        """Add a file with rows for the queue."""
        hidden = self.folder / "hidden"
        hidden.write_text("\n".join(map(str, numbers)))
        hidden.rename(self.folder / "in" / f"{self._files}.txt")
        self._files += 1

    def rows(self) -> list[tuple[str, bool]]:
        """Return the body and the verdict of each row in the table."""
        found = rows_in(self.folder / "table", "body", "is_duplicate")
        return [(row["body"].decode(), row["is_duplicate"]) for row in found]

    def until_rows(self, count: int) -> None:
        self._until(lambda: len(self.rows()) >= count, f"{count} rows in the table")

    def until_sent(self, count: int) -> None:
        self._until(lambda: self.bus.http.metric("messages", entity=self.target) >= count, f"{count} messages")

    def until_tried(self) -> None:
        """Wait until the sink has begun a micro-batch that it has not committed."""
        offsets, commits = (self.folder / "checkpoint-queue" / name for name in ("offsets", "commits"))
        self._until(lambda: _newest(offsets) > _newest(commits), "a batch is under way")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            for query in self.queries:
                assert query.isActive, query.exception()
            return condition()

        until(holds, what, limit=LIMIT)


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def away_and_back(streams: Streams, *, killed: bool, seconds: float) -> None:
    bus = streams.bus
    with streams.running():
        bus.send(streams.source, messages(*range(20)))
        streams.write(range(5))
        streams.write(range(5, 10))
        streams.until_rows(1)
        streams.until_sent(1)
        began = time.monotonic()
        with bus.away(killed=killed):
            before = len(streams.rows())
            streams.write(range(10, 15))
            streams.until_tried()
            time.sleep(seconds)
        away = time.monotonic() - began
        # Some ids come a second time. The queue itself does not detect that.
        bus.send(streams.source, messages(*range(15, 25)))
        streams.write(range(15, 20))
        streams.until_rows(30)
        streams.until_sent(20)
        bus.emptied(streams.source)
    rows = streams.rows()
    assert sorted(body for body, is_duplicate in rows if not is_duplicate) == texts(*range(25))
    assert sorted(body for body, is_duplicate in rows if is_duplicate) == texts(*range(15, 20))
    assert sorted(map(text, bus.receive(streams.target, 20))) == texts(*range(20))
    print(f"\naway for {away:.0f} seconds, with {before} of {len(rows)} rows in the table; 20 messages sent, each once")


def test_away_for_a_moment(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    away_and_back(Streams(session, bus, tmp_path, "away"), killed=False, seconds=0)


@pytest.mark.torture
@pytest.mark.parametrize("killed", [False, True])
def test_away_for_a_minute(session: SparkSession, bus: Bus, tmp_path: Path, killed: bool) -> None:
    away_and_back(Streams(session, bus, tmp_path, f"minute-{killed}"), killed=killed, seconds=60)
