"""Dropped duplicates, forgets, refusals and the quarantine, as JSON. Times are ISO 8601 with microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebus.broker.refusals import Refusal
from oncebus.engine.store import Duplicate, Forget, Outcome, Purged, Quarantined
from oncebus.model.entities import Catalogue
from oncebus.protocols.http.times import iso8601


def drops_page(path: str, drops: Sequence[Duplicate], limit: int) -> dict[str, Any]:
    """Return a page of an entity's dropped duplicates.

    Its `next` is the `after` for the next page, or null on the last page.
    """
    return {"entity": path, "duplicates": [_drop(drop) for drop in drops], "next": _next(drops, limit)}


def forgets_page(path: str, forgets: Sequence[Forget], limit: int) -> dict[str, Any]:
    """Return a page of an entity's forgets. Its `next` is as in `drops_page`."""
    return {"entity": path, "forgets": [forget_record(forget) for forget in forgets], "next": _next(forgets, limit)}


def forget_record(forget: Forget) -> dict[str, Any]:
    """Return a forget. `original` is the message whose id was remembered, null if none was."""
    return {
        "record": forget.number,
        "messageId": forget.message_id,
        "sessionId": forget.session,
        "partitionKey": forget.partition_key,
        "time": iso8601(forget.time),
        "sequenceNumber": forget.sequence,
        "original": _original(forget.original_sequence, forget.original_time),
    }


def purge_record(path: str, done: Purged) -> dict[str, Any]:
    """Return what a purge has done. If `more` is true, the client asks again with this `before`."""
    return {
        "entity": path,
        "deleted": done.deleted,
        "left": done.left,
        "before": iso8601(done.before),
        "more": done.has_more,
    }


def refusals_page(path: str, counts: Mapping[str, int], refusals: Sequence[Refusal]) -> dict[str, Any]:
    """Return the refusals of an entity since the start: the count by reason, and the latest refusals, oldest first."""
    return {
        "entity": path,
        "counts": dict(counts),
        "refusals": [
            {
                "reason": each.reason,
                "text": each.text,
                "count": each.count,
                "first": iso8601(each.first),
                "last": iso8601(each.last),
            }
            for each in refusals
        ],
    }


def quarantine_page(catalogue: Catalogue, rows: Sequence[Quarantined], limit: int) -> dict[str, Any]:
    """Return a page of quarantined messages, without their content."""
    return {"quarantined": [_quarantine_record(catalogue, row) for row in rows], "next": _next(rows, limit)}


def decision_record(done: str, numbers: Sequence[int], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return which quarantined messages were handled, under the key `done`, and which were not found."""
    found = dict(zip(numbers, outcomes, strict=True))
    return {
        done: [number for number, outcome in found.items() if outcome is Outcome.DONE],
        "notFound": [number for number, outcome in found.items() if outcome is not Outcome.DONE],
    }


def _drop(drop: Duplicate) -> dict[str, Any]:
    record = {
        "record": drop.number,
        "messageId": drop.message_id,
        "time": iso8601(drop.time),
        "sequenceNumber": drop.sequence,
        "original": _original(drop.original_sequence, drop.original_time),
    }
    if drop.counted_by is not None:
        record["counted"] = {"by": drop.counted_by, "id": drop.counted_id}
    return record


def _original(sequence: int | None, time: int | None) -> dict[str, Any] | None:
    if sequence is None:
        return None
    return {"sequenceNumber": sequence, "time": iso8601(time) if time is not None else None}


def _quarantine_record(catalogue: Catalogue, row: Quarantined) -> dict[str, Any]:
    entity = catalogue.entity(row.entity)
    return {
        "number": row.number,
        "entity": entity.path if entity is not None else None,
        "messageId": row.message_id,
        "sessionId": row.session,
        "partitionKey": row.partition_key,
        "time": iso8601(row.time),
        "sequenceNumber": row.sequence,
        "position": row.position,
        "reason": row.reason,
        "description": row.description,
        "size": row.size,
    }


def _next(rows: Sequence[Duplicate] | Sequence[Forget] | Sequence[Quarantined], limit: int) -> int | None:
    return rows[-1].number if len(rows) == limit else None
