"""Ensures that a ledger has one writer at a time. A query id and a token together identify a writer.

The driver generates the token, once for each call of `detect_duplicates`. The query id comes from Spark, and stays the
same after each restart from one checkpoint. So if one call is started as two queries, there are two writers. Two calls
within one query are two writers as well.

A writer that has no generation yet follows the one that its driver saw when it started, and no other. A task may
outlive its driver and enter when the next driver has committed batches. If it could follow that driver, those batches
would not count any more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from oncebus.ledger.generations import SILENT_SECONDS, Generation, LedgerInUse
from oncebus.ledger.listing import Listing
from oncebus.ledger.owner import Owner

_TOKEN = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Writer:
    """One call of `detect_duplicates`, or one start of the broker's pipeline, in one query.

    `follows` is the number of the newest generation, asides apart, that the driver saw when it started: 0 if there was
    none. `has_ended` says whether the driver knew that the writer of that generation has ended. `parts` is the number
    of parts that the query keeps; None if it keeps none.
    """

    token: str
    query: str
    owner: Owner | None
    follows: int = 0
    has_ended: bool = True
    parts: int | None = None

    def __post_init__(self) -> None:
        # The token is part of file names. Nobody would see runs under a name that cannot be parsed.
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(f"Token {self.token!r} must be lower-case hexadecimal.")

    def has_claimed(self, generation: Generation) -> bool:
        """Return whether this writer has claimed the generation."""
        return (generation.query, generation.token) == (self.query, self.token)


class Predecessor(NamedTuple):
    """The generation that a writer follows, and whether its writer is known to have ended: see `Writer`."""

    number: int
    has_ended: bool


def find_predecessor(listing: Listing, location: str, is_running: Callable[[str], bool], owner: Owner) -> Predecessor:
    """Return what a writer that starts now follows.

    `is_running` returns whether a streaming query of the `owner` is running. Raises `LedgerInUse` if the newest writer
    is known to be running.
    """
    newest = listing.main
    if newest is None:
        return Predecessor(0, has_ended=True)
    if listing.is_at_rest():
        return Predecessor(newest.number, has_ended=True)
    if newest.owner == owner and not newest.is_in_query:
        if is_running(newest.query):
            raise in_use(location, newest, "this process")
        return Predecessor(newest.number, has_ended=True)
    alive = newest.owner.is_alive() if newest.owner else None
    if alive:
        raise in_use(location, newest, f"process {newest.owner and newest.owner.pid}")
    return Predecessor(newest.number, has_ended=alive is False)


def refuse_unless_next(listing: Listing, location: str, writer: Writer) -> None:
    """Raise `LedgerInUse` unless a writer that has no generation may claim the next one.

    The table in docs/internals/ledger.md, "One writer at a time", has all cases.
    """
    newest = listing.main
    is_as_seen = listing.is_unchanged_since(writer.follows)
    if is_as_seen and (newest is None or writer.has_ended or listing.is_at_rest()):
        return
    if newest is None:
        raise ledger_changed(location, writer, "it has none")
    is_same_query = newest.query == writer.query
    if newest.token == writer.token:
        raise started_twice(location, newest.query, writer.query)
    if is_same_query and newest.owner == writer.owner:
        raise second_operator(location, newest.query)
    alive = newest.owner.is_alive() if newest.owner else None
    if alive:
        is_ours = newest.owner == writer.owner
        raise in_use(location, newest, "this process" if is_ours else f"process {newest.owner and newest.owner.pid}")
    if not is_as_seen:
        raise ledger_changed(location, writer, f"it is generation {newest.number} of query {newest.query}")
    # A restart from the checkpoint takes over its own query at once. A different query must wait until the writer has
    # been silent for a while.
    if alive is None and not is_same_query:
        _refuse_if_recent(listing, location, newest)


def _refuse_if_recent(listing: Listing, location: str, newest: Generation) -> None:
    silent = time.time() - last_written_ns(listing, newest) / 1e9
    if silent < SILENT_SECONDS:
        raise LedgerInUse(
            f"Ledger '{location}' was written {silent:.0f} s ago by query {newest.query} on another machine. Stop that "
            f"query, and wait {SILENT_SECONDS:.0f} s."
        )


def last_written_ns(listing: Listing, generation: Generation) -> int:
    """Return when the writer of a generation last published a file, in nanoseconds since 1970."""
    written = [stamp.modified_ns for name, stamp in listing.stamps.items() if generation.token in name]
    return max([*written, listing.stamps[generation.file_name].modified_ns])


def in_use(location: str, newest: Generation, where: str) -> LedgerInUse:
    """Return the error for a second writer while the first one runs."""
    return LedgerInUse(
        f"Ledger '{location}' is being written by query {newest.query} of {where}. Stop that query first, or "
        "give each query a ledger of its own. If it has ended, call detect_duplicates again. A batch can join while a "
        "query runs, with the query's checkpoint: Ledger.open(…).batch(checkpoint=…)."
    )


def belongs_to_query(location: str, newest: Generation) -> LedgerInUse:
    """Return the error for a batch that would take the ledger from a query that is not running."""
    return LedgerInUse(
        f"Ledger '{location}' belongs to query {newest.query}, which could not continue if this batch took it over. "
        "Give the query's checkpoint, and the batch joins beside it: batch(checkpoint=…), forget(…, checkpoint=…). "
        "If the query is given up: batch(take_over=True), or oncebus dedup --take-over."
    )


def started_twice(location: str, first: str, second: str) -> LedgerInUse:
    """Return the error for one result of `detect_duplicates` that is started as two queries."""
    return LedgerInUse(
        f"One result of detect_duplicates was started as two queries, {first} and {second}, but ledger '{location}' "
        "remembers the keys of one. Write new rows and duplicates in one query: "
        'checked.writeStream.partitionBy("is_duplicate"), or foreachBatch. '
        'See "Both outputs" in docs/reference/spark.md.'
    )


def ledger_changed(location: str, writer: Writer, now: str) -> LedgerInUse:
    """Return the error for a writer whose driver saw another generation than the one that it would follow."""
    seen = f"its newest generation was {writer.follows}" if writer.follows else "it had no generation"
    return LedgerInUse(
        f"Ledger '{location}' has changed since the driver of query {writer.query} started: {seen} then, and now {now}."
        " Only one query may write to it at a time. If the other one has ended, call detect_duplicates again."
    )


def taken_over(location: str, ours: Generation, newest: Generation) -> LedgerInUse:
    """Return the error for a writer that continues after another one has taken over."""
    return LedgerInUse(
        f"Ledger '{location}' has been taken over from query {ours.query} by query {newest.query} (generation "
        f"{newest.number}). Only one query may write to it at a time. Start again, and continue from the ledger's "
        "current state."
    )


def claimed_at_once(location: str, ours: Generation, rival: Generation) -> LedgerInUse:
    """Return the error for the slower of two writers that claim the same generation."""
    if ours.token == rival.token:
        return started_twice(location, rival.query, ours.query)
    if ours.query == rival.query:
        return second_operator(location, ours.query)
    return LedgerInUse(
        f"Ledger '{location}' was claimed by query {rival.query} at the same moment as by query {ours.query}. Stop one "
        "of them, then start again."
    )


def second_operator(location: str, query: str) -> LedgerInUse:
    """Return the error for a second call of `detect_duplicates` in one query."""
    return LedgerInUse(
        f"Ledger '{location}' is also written by another detect_duplicates call of the same query {query}. Give each "
        "call a ledger of its own, or union the streams before one call. If you restarted the query, call "
        "detect_duplicates again."
    )
