"""Reports the path of messages to a tracer, if there is one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from oncebus.broker.catalogues import Catalogues
from oncebus.engine.engine import Log
from oncebus.engine.inbox import Row
from oncebus.engine.outbox import Entry
from oncebus.engine.store import Message, Outcome, Settlement
from oncebus.model.entities import Catalogue
from oncebus.model.messages import Result

log = logging.getLogger(__name__)


class Tracer(Protocol):
    """Follows messages. A broker without a tracer does no work for it.

    No method raises. `began` is when a step began, on the broker's monotonic clock; it ends with the call. All methods
    but `processed` are called in the event loop.
    """

    def accepted(self, catalogue: Catalogue, rows: Sequence[Row], began: int) -> None:
        """Note that rows of the inbox have become durable."""
        ...

    def processed(self, catalogue: Catalogue, results: Sequence[Result], entries: Sequence[Entry]) -> None:
        """Note that the store has ingested the results in these outbox entries. Called in a thread of its own.

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

    def report(self, tracer: Tracer, catalogue: Catalogue, results: Sequence[Result], entries: Sequence[Entry]) -> None:
        """Report the rows of ingested entries. Their commits must still be in the inbox. Errors are only logged."""
        try:
            results = self._with_heads(results, entries[0].after + 1, entries[-1].last)
        except Exception:
            # Whatever it is: the rows are ingested, and a trace is not worth a retry.
            log.exception("Dropped messages could not be traced")
        tracer.processed(catalogue, results, entries)

    def _with_heads(self, results: Sequence[Result], first: int, last: int) -> Sequence[Result]:
        without = {row.position for row, *_ in results if not row.head}
        if not without:
            return results
        self._inbox.forget(first - 1)
        found = {row.position: row.head for row in self._inbox.read(first, last) if row.position in without}
        return [
            result._replace(row=result.row._replace(head=found.get(result.row.position, b"")))
            if not result.row.head
            else result
            for result in results
        ]
