"""Reads an entity as a stream: the streaming reader of the data source.

The contract with Spark. An offset is the number of batches that the spool has had. `latestOffset` receives messages,
writes them to the spool as the next batch, and only then returns the new offset. Tasks read the spool, never the
broker. A message is completed after Spark has finished its batch. Spark says so twice: it asks for the offset after a
batch only when that batch is in its commit log, and later it calls `commit`. The first lets us complete the messages
of the last batch of an idle stream, for which Spark does not call `commit`. The batch's file is deleted only after
the second.

If the process is killed, at any of these points:

1. *Received, not in the spool.* The locks expire, and the broker delivers the messages again.
2. *In the spool, Spark has not logged the offset.* The next start finds the file and returns it as the next batch. The
   messages come again when their locks have expired. They are recognised and not taken twice.
3. *Spark has logged the offset, the batch is not finished.* Spark repeats the batch. The tasks read the same file.
4. *The batch is finished, its messages are not completed, or only some of them.* They come again. The file, or
   `settling.json`, says that they are finished: they are completed at once and not taken.
5. *Completed, the file is not deleted.* It is deleted in the next run.

So every message that the stream takes is in exactly one batch. A checkpoint that is older than the spool is refused.
The limits: a message that loses its lock while another consumer receives from the same entity may be taken by both; a
spool that is lost takes the memory of points 2 to 4 with it, and messages that are not completed come again.
`detect_duplicates` finds both. In the mode receive_and_delete the broker deletes on delivery: messages at point 1 are
lost, and those of a lost spool too.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from oncebus.connector.attempts import resolve_access
from oncebus.connector.deliveries import Deliveries, Known
from oncebus.connector.errors import BadColumn, BadSpool, one_line
from oncebus.connector.options import StreamOptions, stream_options
from oncebus.connector.receivers import Delivery, Receivers
from oncebus.connector.schema import rows_from
from oncebus.connector.spool import START_AGAIN, Identity, Spool, read_part
from oncebus.values.durations import MINUTE
from oncebus.values.errors import clip

_LOG = logging.getLogger("oncebus.connector")
Offset = dict[str, Any]


class Part(NamedTuple):
    """The part of a batch in the spool that a task reads. `spool` is the id of the one in `folder`."""

    folder: str
    spool: str
    batch: int
    part: int


class StreamSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. On the driver it owns the spool and the receivers; in a task it only reads the spool."""

    def __init__(self, given: Mapping[str, str], wrong: str | None = None) -> None:
        """Make a reader with the options as Spark gives them. `wrong` is an error that is known already."""
        self._given, self._wrong = dict(given), wrong
        self._known_intake: Intake | None = None
        self._until: int | None = None

    @property
    def _options(self) -> StreamOptions:
        if self._wrong is not None:
            raise BadColumn(self._wrong)
        return stream_options(self._given)

    @property
    def _intake(self) -> Intake:
        # Opened on first use: Spark makes a second reader, only to copy it to the tasks.
        if self._known_intake is None:
            self._known_intake = Intake(self._options)
        return self._known_intake

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need no options, so the connection string does not travel to them.
        return {**self.__dict__, "_given": {}, "_known_intake": None}

    @one_line()
    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a new query begins: with the batches that an earlier query has left in the spool, if any."""
        return self._intake.first()

    @one_line()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the option `max_rows`. Spark has no limit by rows and by bytes; the latter always applies."""
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end after the batch with the first message that was enqueued a minute from now, or later.

        A minute, because the broker's clock may differ from ours. Without this bound, a query on an entity that is
        never empty would not end.
        """
        self._until = _now() + MINUTE

    @one_line()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, which is in the spool then; `start` if there is no message."""
        most = self._options.max_rows
        rows = min(limit.max_rows, most) if isinstance(limit, ReadMaxRows) else most
        return self._intake.next_after(start, rows, self._until)

    @one_line()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return one partition for each part of the batches between two offsets."""
        return [InputPartition(part) for part in self._intake.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch from the spool, in a task."""
        part = partition.value
        assert isinstance(part, Part)
        with one_line():
            yield read_part(*part)

    @one_line()
    def commit(self, end: Offset) -> None:
        """Let the batches up to `end` be deleted, as soon as their messages are completed."""
        self._intake.commit(end)

    def stop(self) -> None:
        """Close the connections and release the spool. Spark does not always call this."""
        if self._known_intake is not None:
            self._known_intake.close()
            self._known_intake = None


class Intake:
    """Moves messages from the entity into the spool, and completes those of finished batches."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        host = resolve_access(options.access, options.entity).host
        self._spool = Spool.open(options.spool, options.entity, host)
        try:
            self._finished, left = self._spool.settling(_now())
            self._deliveries = Deliveries(left)
            for number in self._spool.numbers():
                # Of earlier batches, all others are completed, and do not come back.
                if number >= self._finished:
                    self._deliveries.note_spooled(number, self._spool.identities(number))
            # Before this run writes anything: Spark asks for it again when its first batch is in the spool.
            self._begin = self._first_unfinished()
        except BaseException:
            self._spool.close()
            raise
        self._waiting: deque[Delivery] = deque()
        self._receivers = Receivers(options)
        self._settling: Future[list[Identity]] | None = None
        self._committed = 0
        self._is_resumed = False
        self._is_over = False
        self._has_warned = False

    def first(self) -> Offset:
        """See `StreamSource.initialOffset`."""
        # From 0 on, batches of the spool get their own numbers from Spark again: a sink that skips one has its rows.
        if self._begin and not self._has_warned:
            self._has_warned = True
            # Nothing tells which sink the query has, so this cannot be refused.
            _LOG.warning(
                "An earlier query has used the spool '%s', and this one has a new checkpoint. If it writes with a file "
                "sink of Spark (parquet, json, ...), give it a new path too, or it loses messages: the sink skips "
                "batches whose numbers the old path has.",
                self._spool.folder,
            )
        return self._offset(self._begin)

    def next_after(self, start: Offset, rows: int, until: int | None) -> Offset:
        """See `StreamSource.latestOffset`. `until` is the time at which the query should end; None for never."""
        number = self._check_offset(start)
        self._resume(number)
        self._finish(number)
        if number in self._spool.numbers():
            return self._offset(number + 1)
        taken = [] if self._is_over else self._take(rows, must_be_sure=until is not None)
        if not taken:
            # Nothing else to do: wait for the completion. A query that ends now would otherwise leave it undone.
            self._settle()
            self._collect()
            self._spool.save_settling(self._finished, self._deliveries.finished, _now())
            return start
        for ahead, batch in enumerate(taken):
            self._spool.write(number + ahead, rows_from(each.message for each in batch), self._options.partitions)
            self._deliveries.note_spooled(number + ahead, [each.identity for each in batch])
        newest = max(each.identity.enqueued_time for batch in taken for each in batch)
        self._is_over = until is not None and newest > until
        self._collect()
        self._settle()
        return self._offset(number + 1)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        """See `StreamSource.partitions`."""
        if start == end:
            return []
        first, last = _number_of(start), _number_of(end)
        if end["spool"] != self._spool.identity:
            raise BadSpool(
                f"The checkpoint needs batches of another spool than '{self._spool.folder}'. Give the query the spool "
                f"it had. If it is lost: {START_AGAIN}"
            )
        self._resume(first)
        folder, identity = self._spool.folder, self._spool.identity
        return [
            Part(folder, identity, number, part)
            for number in range(first, last)
            for part in range(self._spool.parts(number))
        ]

    def commit(self, end: Offset) -> None:
        """See `StreamSource.commit`."""
        self._committed = max(self._committed, end["batch"])

    @property
    def unconfirmed(self) -> frozenset[Identity]:
        """The messages of finished batches whose completion the broker has not confirmed."""
        return self._deliveries.finished

    def close(self) -> None:
        """Close the connections and release the spool."""
        try:
            self._receivers.close()
        finally:
            self._spool.close()

    def _first_unfinished(self) -> int:
        """Return the number with which a query with a new checkpoint begins."""
        return min((number for number in self._spool.numbers() if number >= self._finished), default=self._finished)

    def _offset(self, number: int) -> Offset:
        return {"spool": self._spool.identity, "batch": number}

    def _check_offset(self, start: Offset) -> int:
        """Return the number of an offset. Raises `BadSpool` if a batch of that number cannot be the next one.

        An offset of another spool is fine if this one is new: Spark has committed everything up to it. An offset of
        this one is older than the spool if the checkpoint is an old copy. Its next batch would get a number that the
        tables of the query have already, and Spark's file sinks skip such a batch, with all its messages.
        """
        number, numbers = _number_of(start), self._spool.numbers()
        if start["spool"] != self._spool.identity and (numbers or self._finished > number):
            raise BadSpool(
                f"The spool '{self._spool.folder}' holds batches of another query than the checkpoint. Give the query "
                "the spool it had, or an empty one."
            )
        newest = max([self._finished, *numbers])
        if number < newest and number not in numbers:
            raise BadSpool(
                f"The checkpoint is older than the spool '{self._spool.folder}': it continues with batch {number}, and "
                f"the spool is at batch {newest}. Messages of batches before {self._first_unfinished()} were completed "
                "and do not come again. Was the checkpoint restored from a backup, or did another query use the spool? "
                f"{START_AGAIN}"
            )
        return number

    def _resume(self, number: int) -> None:
        """Note that everything before the first offset of a run is committed: Spark has it from its log on the disk.

        Without this, files would pile up if every run of the query dies before Spark calls `commit`.
        """
        if not self._is_resumed:
            self._committed, self._is_resumed = number, True

    def _finish(self, number: int) -> None:
        self._finished = number
        self._deliveries.finish(number)

    def _take(self, rows: int, *, must_be_sure: bool) -> list[list[Delivery]]:
        """Receive until there are new messages or nothing comes. Return the next batch; none if there is no message.

        In the mode receive_and_delete the broker has already deleted everything that is here. So the result has further
        batches then, and no message waits in memory for the next call.
        """
        while not (batches := self._next_batches(rows)):
            received = self._receivers.receive(rows, self._options.max_bytes)
            for delivery in received.deliveries:
                if self._deliveries.state_of(delivery.identity) is Known.NEW:
                    self._deliveries.wait(delivery.identity)
                    self._waiting.append(delivery)
            if not received.deliveries and (received.is_sure or not must_be_sure):
                break
            # Messages of finished batches that came again.
            self._settle()
        return batches

    def _next_batches(self, rows: int) -> list[list[Delivery]]:
        """Return the next batch of waiting messages, or all of them; none if no message waits whose lock is held."""
        batches: list[list[Delivery]] = []
        while self._waiting and (not batches or self._options.deletes):
            if batch := self._next_waiting(rows):
                batches.append(batch)
        return batches

    def _next_waiting(self, rows: int) -> list[Delivery]:
        """Return the waiting messages for a batch, within its limits."""
        taken: list[Delivery] = []
        size = 0
        while self._waiting and len(taken) < rows and size < self._options.max_bytes:
            delivery = self._waiting.popleft()
            if self._receivers.holds(delivery.identity):
                taken.append(delivery)
                size += delivery.size
            else:
                # Its lock is lost, so another consumer may have it by now.
                self._deliveries.forget(delivery.identity)
        return taken

    def _settle(self) -> None:
        """Start to complete the messages of finished batches whose locks are held."""
        self._collect()
        if not self._options.deletes:
            self._settling = self._receivers.complete(self._deliveries.finished)

    def _collect(self) -> None:
        """Wait for the completion that was started last, and delete the batches that are no longer needed."""
        if self._settling is not None:
            self._deliveries.confirm(self._settling.result())
            self._settling = None
        elif self._options.deletes:
            self._deliveries.confirm(self._deliveries.finished)
        done = [number for number in self._spool.numbers() if number < min(self._committed, self._finished)]
        if done:
            self._spool.save_settling(self._finished, self._deliveries.finished, _now())
            for number in done:
                self._spool.delete(number)


def _number_of(offset: Offset) -> int:
    """Return the number of batches that an offset stands for. Raises `BadSpool` if it is not one of ours."""
    if not isinstance(offset, dict) or not isinstance(number := offset.get("batch"), int) or "spool" not in offset:
        raise BadSpool(
            f"The checkpoint belongs to another source: {clip(offset)} is not an offset of format('servicebus'). Use "
            "a new checkpoint."
        )
    return number


def _now() -> int:
    return time.time_ns() // 1000
