"""Dropped duplicates, refusals and the quarantine, as JSON. Times are ISO 8601 with microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oncebus.broker.refusals import Refusal
from oncebus.entities import Catalogue
from oncebus.http.times import iso8601
from oncebus.store import Duplicate, Outcome, Quarantined


def drops_page(path: str, drops: Sequence[Duplicate], limit: int) -> dict[str, Any]:
    """Return a page of an entity's dropped duplicates.

    Its `next` is the `after` for the next page, or null on the last page.
    """
    return {"entity": path, "duplicates": [_drop(drop) for drop in drops], "next": _next(drops, limit)}


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
    return {"quarantined": [_quarantined(catalogue, row) for row in rows], "next": _next(rows, limit)}


def decided(done: str, numbers: Sequence[int], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return which quarantined messages were handled, under the key `done`, and which were not found."""
    found = dict(zip(numbers, outcomes, strict=True))
    return {
        done: [number for number, outcome in found.items() if outcome is Outcome.DONE],
        "notFound": [number for number, outcome in found.items() if outcome is not Outcome.DONE],
    }


def _drop(drop: Duplicate) -> dict[str, Any]:
    original = None
    if drop.original_sequence is not None:
        original = {
            "sequenceNumber": drop.original_sequence,
            "time": iso8601(drop.original_time) if drop.original_time is not None else None,
        }
    return {
        "number": drop.number,
        "messageId": drop.message_id,
        "time": iso8601(drop.time),
        "sequenceNumber": drop.sequence,
        "original": original,
    }


def _quarantined(catalogue: Catalogue, row: Quarantined) -> dict[str, Any]:
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


def _next(rows: Sequence[Duplicate] | Sequence[Quarantined], limit: int) -> int | None:
    return rows[-1].number if len(rows) == limit else None
