"""Reports the path of messages to a tracer, if there is one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from oncebus.broker.catalogues import Catalogues
from oncebus.engine.engine import Log
from oncebus.engine.inbox import Row
from oncebus.engine.outbox import Entry
from oncebus.engine.store import Message, Outcome, Settlement
from oncebus.model.entities import Catalogue

log = logging.getLogger(__name__)


class Tracer(Protocol):
    """Follows messages. A broker without a tracer does no work for it.

    No method raises. `began` is when a step began, on the broker's monotonic clock; it ends with the call. All methods
    but `processed` are called in the event loop.
    """

    def accepted(self, catalogue: Catalogue, rows: Sequence[Row], began: int) -> None:
        """Note that rows of the inbox have become durable."""
        ...

    def processed(self, catalogue: Catalogue, rows: pa.Table, entries: Sequence[Entry]) -> None:
        """Note that the store has ingested the rows of these outbox entries. Called in a thread of its own.

        All rows have their heads, even those that the outbox keeps without.
        """
        ...

    def delivered(self, catalogue: Catalogue, messages: Sequence[Message], began: int) -> None:
        """Note that a receiver gets messages."""
        ...

    def settled(
        self, catalogue: Catalogue, settlements: Sequence[Settlement], outcomes: Sequence[Outcome], began: int
    ) -> None:
        """Note that messages have been settled, or not: there is an outcome for each."""
        ...


class Tracing:
    """Where the parts of a broker report steps. It passes them on to the tracer, if there is one."""

    def __init__(self, catalogues: Catalogues) -> None:
        self.tracer: Tracer | None = None
        self._catalogues = catalogues

    def accepted(self, rows: Sequence[Row], began: int) -> None:
        """See `Tracer.accepted`."""
        if self.tracer is not None:
            self.tracer.accepted(self._catalogues.current, rows, began)

    def delivered(self, messages: Sequence[Message], began: int) -> None:
        """See `Tracer.delivered`."""
        if self.tracer is not None:
            self.tracer.delivered(self._catalogues.current, messages, began)

    def settled(self, settlements: Sequence[Settlement], outcomes: Sequence[Outcome], began: int) -> None:
        """See `Tracer.settled`."""
        if self.tracer is not None:
            self.tracer.settled(self._catalogues.current, settlements, outcomes, began)


class Reporter:
    """Reports ingested rows to a tracer, with the heads of dropped messages, which only the inbox has."""

    def __init__(self, inbox: Log) -> None:
        self._inbox = inbox.reader()

    def report(self, tracer: Tracer, catalogue: Catalogue, rows: pa.Table, entries: Sequence[Entry]) -> None:
        """Report the rows of ingested entries. Their commits must still be in the inbox. Errors are only logged."""
        try:
            rows = self._with_heads(rows, entries[0].after + 1, entries[-1].last)
        except Exception:
            # Whatever it is: the rows are ingested, and a trace is not worth a retry.
            log.exception("Dropped messages could not be traced")
        tracer.processed(catalogue, rows, entries)

    def _with_heads(self, rows: pa.Table, first: int, last: int) -> pa.Table:
        without = pc.equal(pc.binary_length(rows.column("head")), 0).combine_chunks()
        positions = rows.column("position").filter(without)
        if not len(positions):
            return rows
        self._inbox.forget(first - 1)
        found: dict[int, bytes] = {}
        for batch in self._inbox.read(first, last):
            some = batch.filter(pc.is_in(batch.column("position"), positions.combine_chunks()))
            found |= zip(some.column("position").to_pylist(), some.column("head").to_pylist(), strict=True)
        at = rows.schema.get_field_index("head")
        heads = pa.array([found.get(position, b"") for position in positions.to_pylist()], rows.schema.field(at).type)
        column = pc.replace_with_mask(rows.column(at), without, heads)
        return rows.set_column(at, rows.schema.field(at), column)
