"""Turns what a ledger says about itself into rows for people: in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from oncebus.ledger.generations import IN_QUERY, Generation
from oncebus.ledger.names import LANES
from oncebus.ledger.overview import Day, Files, LedgerOverview
from oncebus.values.durations import DAY, LONGEST, duration_text, utc_text

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
    if overview.windows:
        yield "windows", ", ".join("ever" if window > LONGEST else duration_text(window) for window in overview.windows)
    yield "past their window", f"{overview.expired:,}"
    yield "tombstones", f"{overview.tombstones:,}"
    if overview.asides:
        yield "batches beside the query", f"{overview.asides}, open or died"
    if overview.unclaimed.count:
        yield "not joined", f"{_files_text(overview.unclaimed)}, of a batch that is open or died"
    if overview.leftovers.count:
        yield "left over", f"{_files_text(overview.leftovers)}: the next writer deletes them"


def day_rows(days: Sequence[Day]) -> list[tuple[str, str, str]]:
    """Return the date, ids and size of each day, the oldest first. Days before the newest ones share a row."""
    older, newer = days[:-MOST_DAYS], days[-MOST_DAYS:]
    rows = [(_day_text(day), day.ids, day.bytes) for day in newer]
    if older:
        rows.insert(0, (f"before {date_of(newer[0])}", sum(day.ids for day in older), sum(day.bytes for day in older)))
    return [(name, f"{ids:,}", size_text(size)) for name, ids, size in rows]


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


def _day_text(day: Day) -> str:
    return f"{date_of(day)} or {day.reaches}" if day.reaches else date_of(day)


def date_of(day: Day) -> str:
    """Return the date of a day, in UTC."""
    return utc_text(day.number * DAY).partition("T")[0]


def _files_text(files: Files) -> str:
    return f"{files.count:,} {'file' if files.count == 1 else 'files'}, {size_text(files.bytes)}"


def overview_html(location: str, overview: LedgerOverview) -> str:
    """Return an overview as the two tables that `oncebus ledger show` prints, for notebooks."""
    about = "".join(_html_row(row) for row in overview_rows(overview))
    days = "".join(_html_row(row) for row in day_rows(overview.days))
    by_day = f"<table><caption>By day (UTC)</caption>{days}</table>" if days else ""
    title = escape(f"Ledger '{location}'")
    return f"<table><caption>{title}</caption>{about}</table>{by_day}"


def _html_row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>"
