"""Turns what a ledger says about itself into rows, lines and JSON, for `oncebus ledger`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from oncebus.ledger import Generation, LedgerOverview, Memory, Sighting
from oncebus.ledger.generations import IN_QUERY
from oncebus.ledger.names import LANES
from oncebus.ledger.overview import Day, Files
from oncebus.values.durations import DAY, utc_text

MOST_DAYS = 31
"""The table shows so many of the newest days one by one. JSON has all days."""


def overview_rows(overview: LedgerOverview) -> Iterator[tuple[str, str]]:
    """Yield the names and values of what people want to know about a ledger."""
    summary, last, main = overview.summary, overview.last, overview.main
    yield "key", ", ".join(overview.description.key)
    if main is not None and main is not last:
        yield "belongs to", _writer_text(main)
    if last is not None and overview.written is not None:
        yield "last writer", f"{_writer_text(last)}; wrote at {utc_text(overview.written)}"
    yield "holds", summary.size_text()
    if overview.parts:
        yield "parts", ", ".join("lanes" if parts == LANES else str(parts) for parts in overview.parts)
    if summary.horizon is not None:
        yield "seen up to", utc_text(summary.horizon)
    if overview.oldest is not None and overview.newest is not None:
        yield "times", f"{utc_text(overview.oldest)} to {utc_text(overview.newest)}"
    yield "past their window", f"{overview.expired:,}"
    yield "tombstones", f"{overview.tombstones:,}"
    if overview.asides:
        yield "batches beside the query", f"{overview.asides}, open or died"
    if overview.unclaimed.count:
        yield "not joined", f"{_files_text(overview.unclaimed)}, of a batch that is open or died"
    if overview.leftovers.count:
        yield "left over", f"{_files_text(overview.leftovers)}: the next writer deletes them"


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
        "past_window": overview.expired,
        "tombstones": overview.tombstones,
        "asides": overview.asides,
        "not_joined": asdict(overview.unclaimed),
        "left_over": asdict(overview.leftovers),
        "days": [_day_json(day) for day in overview.days],
    }


def day_rows(days: Sequence[Day]) -> list[tuple[str, str, str]]:
    """Return the date, ids and size of each day, the oldest first. Days before the newest ones share a row."""
    older, newer = days[:-MOST_DAYS], days[-MOST_DAYS:]
    rows = [(_day_text(day), day.ids, day.bytes) for day in newer]
    if older:
        rows.insert(0, (f"before {_date(newer[0])}", sum(day.ids for day in older), sum(day.bytes for day in older)))
    return [(name, f"{ids:,}", size_text(size)) for name, ids, size in rows]


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


def size_text(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def _writer_text(generation: Generation) -> str:
    owner = generation.owner
    where = "an unknown process"
    if owner is not None:
        state = {True: ", which is alive", False: ", which has ended", None: " on another machine"}[owner.is_alive()]
        where = f"process {owner.pid}{state}" if owner.pid else "a session of Spark Connect"
    return f"{_name(generation)}, {where}"


def _name(generation: Generation) -> str:
    if generation.is_aside:
        return "a batch beside the query"
    if generation.is_batch:
        return "a batch"
    if generation.is_in_query:
        return f"batches in foreachBatch of query '{generation.query.removeprefix(IN_QUERY)}'"
    return f"query {generation.query}"


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
    found: dict[str, Any] = {"day": _date(day), "ids": day.ids, "bytes": day.bytes}
    return {**found, "reaches": day.reaches} if day.reaches else found


def _day_text(day: Day) -> str:
    return f"{_date(day)} or {day.reaches}" if day.reaches else _date(day)


def _date(day: Day) -> str:
    return utc_text(day.number * DAY).partition("T")[0]


def _files_text(files: Files) -> str:
    return f"{files.count:,} {'file' if files.count == 1 else 'files'}, {size_text(files.bytes)}"


def _moment(time: int | None) -> str | None:
    return None if time is None else utc_text(time, is_precise=True)
