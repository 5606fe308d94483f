"""The broker is away while streams run: they go on by themselves when it is back, and nothing is lost or twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from serve.programs import until

from .bus import DETECTS, PATIENCE, QUICK, Bus, error_line, rows_of, stream, text

SEVERAL = 5


class Streams:
    """A stream from a queue into a table, and one from files to another queue."""

    def __init__(self, session: SparkSession, bus: Bus, folder: Path, name: str) -> None:
        self.session, self.bus, self.folder = session, bus, folder
        self.source = bus.queue(f"{name}-source", **QUICK)
        self.target = bus.queue(f"{name}-target", **DETECTS, **QUICK)
        self.sent = self.written = 0
        (folder / "in").mkdir()

    @contextmanager
    def run(self, retry_timeout: str) -> Iterator[tuple[StreamingQuery, StreamingQuery]]:
        """Run both for the block."""
        received = stream(self.session, self.bus, self.folder, queue=self.source, retry_timeout=retry_timeout)
        into_table = received.writeStream.format("parquet").option("path", str(self.folder / "out"))
        source = into_table.option("checkpointLocation", str(self.folder / "checkpoint-source")).start()
        rows = self.session.readStream.text(str(self.folder / "in")).selectExpr("value as body")
        options = self.bus.options(queue=self.target, retry_timeout=retry_timeout)
        into_queue = rows.writeStream.format("servicebus").options(**options)
        sink = into_queue.option("checkpointLocation", str(self.folder / "checkpoint-sink")).start()
        try:
            yield source, sink
        finally:
            source.stop()
            sink.stop()

    def send(self) -> None:
        """Send messages to the queue that is read."""
        numbers = range(self.sent, self.sent + SEVERAL)
        self.bus.send(self.source, [ServiceBusMessage(str(number)) for number in numbers])
        self.sent += SEVERAL

    def write(self) -> None:
        """Add rows for the queue that is written."""
        numbers = range(self.written, self.written + SEVERAL)
        hidden = self.folder / "hidden"
        hidden.write_text("\n".join(map(str, numbers)))
        hidden.rename(self.folder / "in" / f"{self.written}.txt")
        self.written += SEVERAL

    def received(self) -> list[str]:
        return sorted(row["body"].decode() for row in rows_of(self.folder / "out", "body"))

    def arrive(self) -> None:
        """Wait until all messages are in the table and completed, and check that each is there once."""
        until(lambda: len(self.received()) >= self.sent, "all rows", limit=PATIENCE)
        self.bus.emptied(self.source)
        assert self.received() == sorted(map(str, range(self.sent)))

    def arrive_at_the_end(self) -> None:
        """Wait until all rows are in the queue, and check that each is there once."""
        found = sorted(map(text, self.bus.receive(self.target, self.written)))
        assert found == sorted(map(str, range(self.written)))


def away_and_back(streams: Streams, retry_timeout: str, seconds: float) -> None:
    with streams.run(retry_timeout) as queries:
        streams.send()
        streams.write()
        streams.arrive()
        with streams.bus.away():
            streams.write()
            time.sleep(seconds)
        streams.send()
        streams.arrive()
        until(lambda: streams.bus.http.metric("messages", entity=streams.target) >= streams.written, "all are sent")
        assert all(query.isActive for query in queries)


def test_away_for_a_moment_and_for_too_long(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    streams = Streams(session, bus, tmp_path, "away")
    away_and_back(streams, "2 minutes", seconds=2)
    with streams.run("1 second") as queries, bus.away():
        streams.write()
        for query, doing in zip(
            queries, ("Receiving from queue 'away-source'", "Sending to queue 'away-target'"), strict=True
        ):
            with pytest.raises(StreamingQueryException) as raised:
                query.awaitTermination(int(PATIENCE))
            assert error_line(raised.value).startswith(f"ServiceBusFailure: {doing} at localhost:")
            assert "Connection refused" in error_line(raised.value)
    with streams.run("2 minutes"):
        streams.send()
        streams.arrive()
        streams.arrive_at_the_end()


@pytest.mark.torture
def test_away_for_a_minute(session: SparkSession, bus: Bus, tmp_path: Path) -> None:
    streams = Streams(session, bus, tmp_path, "minute")
    away_and_back(streams, "5 minutes", seconds=60)
    streams.arrive_at_the_end()
