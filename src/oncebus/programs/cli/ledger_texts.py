"""Turns what a ledger says about itself into lines and JSON, for `oncebus ledger`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oncebus.ledger import Generation, LedgerOverview, Memory, Sighting
from oncebus.ledger.generations import IN_QUERY
from oncebus.ledger.names import LANES
from oncebus.ledger.overview import Day
from oncebus.ledger.overview_texts import date_of
from oncebus.values.durations import LONGEST, SECOND, utc_text


def overview_json(overview: LedgerOverview) -> dict[str, Any]:
    """Return the overview as JSON. Does not contain the ledger's secret."""
    return {
        "id": overview.description.id,
        "key": list(overview.description.key),
        "belongs_to": None if overview.main is None else _writer_json(overview.main),
        "last_writer": None if overview.last is None else _writer_json(overview.last),
        "written": _moment(overview.written),
        **asdict(overview.summary),
        "horizon": _moment(overview.summary.horizon),
        "parts": [parts for parts in overview.parts if parts != LANES],
        "has_lanes": LANES in overview.parts,
        "oldest": _moment(overview.oldest),
        "newest": _moment(overview.newest),
        "windows_seconds": [None if window > LONGEST else window / SECOND for window in overview.windows],
        "past_window": overview.expired,
        "tombstones": overview.tombstones,
        "asides": overview.asides,
        "not_joined": asdict(overview.unclaimed),
        "left_over": asdict(overview.leftovers),
        "days": [_day_json(day) for day in overview.days],
    }


def sightings_text(sightings: Sequence[Sighting]) -> str:
    """Return in one line what a ledger knows about a key."""
    if not sightings:
        return "not known: never seen, or over and deleted."
    remembered = [each for each in sightings if each.memory is Memory.REMEMBERED]
    head = "remembered" if remembered else "not remembered"
    return f"{head}: {'; '.join(str(each) for each in remembered or sightings)}."


def sighting_json(key: str, sightings: Sequence[Sighting]) -> dict[str, Any]:
    """Return what a ledger knows about a key as JSON."""
    return {
        "key": key,
        "is_remembered": any(each.memory is Memory.REMEMBERED for each in sightings),
        "seen": [
            {
                "time": _moment(each.time),
                "sequence": each.sequence,
                "until": None if each.is_for_ever else _moment(each.until),
                "memory": str(each.memory),
            }
            for each in sightings
        ],
    }


def _writer_json(generation: Generation) -> dict[str, Any]:
    owner = generation.owner
    return {
        "generation": generation.number,
        "query": None if generation.is_batch else generation.query.removeprefix(IN_QUERY),
        "is_aside": generation.is_aside,
        "process": owner.pid if owner else None,
        "is_alive": owner.is_alive() if owner else None,
    }


def _day_json(day: Day) -> dict[str, Any]:
    found: dict[str, Any] = {"day": date_of(day), "ids": day.ids, "bytes": day.bytes}
    return {**found, "reaches": day.reaches} if day.reaches else found


def _moment(time: int | None) -> str | None:
    return None if time is None else utc_text(time, is_precise=True)
