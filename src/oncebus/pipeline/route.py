"""Decides the fate of each row, under the catalogue version that the row was accepted under."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncebus.amqp.types import DecodeError, EncodeError
from oncebus.model.entities.detection_keys import counted_id, property_of
from oncebus.model.filters.errors import BadRule
from oncebus.model.messages import NOBODY, Fate, LogRow, Result
from oncebus.pipeline.detect import Original
from oncebus.pipeline.rules import Routes, copies_of


def route(
    rows: Sequence[LogRow], originals: Sequence[Original | None], routes_at: Callable[[int], Routes]
) -> list[Result]:
    """Return the results for rows of the inbox, in the order of the rows; copies in the order of their destinations.

    `originals` has the original of each row that is a duplicate, and of each forget whose key was remembered.
    `routes_at` returns the routes of a catalogue version.
    """
    results: list[Result] = []
    version = None
    for row, original in zip(rows, originals, strict=True):
        if row.catalogue != version:
            version, routes = row.catalogue, routes_at(row.catalogue)
        if row.window < 0:
            results.append(Result(row, Fate.FORGET, None, None, None, *(original or (None, None))))
        elif original is not None:
            detection_key = routes.detection_key(row.entity)
            counted = None if detection_key is None else _counted(row, detection_key)
            results.append(Result(_bare(row), Fate.DUPLICATE, None, detection_key, counted, *original))
        elif routes.is_queue(row.entity):
            results.append(Result(row, Fate.DELIVERED, row.entity))
        elif row.entity != NOBODY:
            results += _results_of_topic(row, routes)
    return results


def _counted(row: LogRow, detection_key: str) -> str | None:
    """Return the id of a duplicate, for the record: a property, or the digest of the key if the body counts."""
    if property_of(detection_key) is None:
        return None if row.key is None else row.key.hex()
    try:
        counted = counted_id(detection_key, row.head, b"")
    except (DecodeError, EncodeError):
        return None
    return None if counted is None else counted.text


def _results_of_topic(row: LogRow, routes: Routes) -> list[Result]:
    """Decide the fate of a new message of a topic, or of an entity that does not exist."""
    try:
        targets = routes.targets(row.entity)
    except BadRule as error:
        return [_quarantined(row, error)]
    if targets is None:
        return [Result(_bare(row), Fate.DISCARDED)]
    if row.scheduled is not None and row.origin_entity != row.entity:
        # The topic keeps it until it falls due. Then it is routed by the rules of that time.
        return [Result(row, Fate.DELIVERED, row.entity)]
    try:
        made = copies_of(row, targets)
    except Exception as error:
        # An unexpected error in one row must not stop the others: Spark would run the batch again, and it would fail
        # again.
        return [_quarantined(row, error)]
    if not made:
        return [Result(_bare(row), Fate.UNROUTED)]
    results = [
        Result(
            row._replace(**copy.changes) if copy.changes else row,
            Fate.DEAD_LETTERED if copy.reason else Fate.DELIVERED,
            copy.destination,
            copy.reason,
            copy.description,
        )
        for copy in made
    ]
    results.sort(key=_destination)
    return results


def _destination(result: Result) -> int:
    return result.destination or 0


def _quarantined(row: LogRow, error: Exception) -> Result:
    """Return the result for a row that cannot be processed. It stays whole, so that people can look at it."""
    return Result(row, Fate.QUARANTINED, None, type(error).__name__, str(error))


def _bare(row: LogRow) -> LogRow:
    """Return a row that is not delivered, as its record needs it."""
    return row._replace(head=b"", body=None)
