"""Who may write a ledger: one writer at a time, told apart by its query and its token.

The token is made up by the driver, once for each call of `detect_duplicates`. The query is the id that Spark gives it,
the same after each restart from one checkpoint. So one call that is started as two queries is two writers, and so are
two calls within one query.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from oncebus.ledger.generations import SILENT_SECONDS, Generation, LedgerInUse, Owner
from oncebus.ledger.listing import Listing

_TOKEN = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Writer:
    """One call of `detect_duplicates`, or one start of the broker's pipeline, in one query.

    `follows` is the number of a generation that is known to have ended, whatever its owner's process does.
    """

    token: str
    query: str
    owner: Owner | None
    follows: int | None = None

    def __post_init__(self) -> None:
        # The token becomes part of file names: runs under a name that cannot be read back would never be seen.
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(f"Token {self.token!r} must be lower-case hexadecimal.")

    def has_claimed(self, generation: Generation) -> bool:
        """Whether the generation is this writer's."""
        return (generation.query, generation.token) == (self.query, self.token)


def newest_ended(listing: Listing, location: str, is_running: Callable[[str], bool], owner: Owner) -> int | None:
    """The number of the newest generation if its writer is known to have ended, else None.

    `is_running` tells whether a streaming query of the `owner` runs. Raises `LedgerInUse` if the newest writer is known
    to be at work.
    """
    newest = listing.newest
    if newest is None:
        return None
    if listing.is_at_rest():
        return newest.number
    if newest.owner == owner and not newest.is_in_query:
        if is_running(newest.query):
            raise in_use(location, newest, "this process")
        return newest.number
    alive = newest.owner.is_alive() if newest.owner else None
    if alive:
        raise in_use(location, newest, f"process {newest.owner and newest.owner.pid}")
    return newest.number if alive is False else None


def refuse_if_live(listing: Listing, location: str, writer: Writer) -> None:
    """Raise `LedgerInUse` if the newest writer is another one that may still be at work."""
    newest = listing.newest
    if newest is None or newest.number == writer.follows or listing.is_at_rest():
        return
    is_same_query = newest.query == writer.query
    if is_same_query and newest.owner == writer.owner:
        raise second_operator(location, newest.query)
    alive = newest.owner.is_alive() if newest.owner else None
    if alive:
        is_ours = newest.owner == writer.owner
        raise in_use(location, newest, "this process" if is_ours else f"process {newest.owner and newest.owner.pid}")
    # Whoever restarts a query from its checkpoint owns it. Another query must have been silent for a while to count as
    # ended.
    if alive is None and not is_same_query:
        written = [stamp.modified_ns for name, stamp in listing.stamps.items() if newest.token in name]
        written.append(listing.stamps[newest.file_name].modified_ns)
        silent = time.time() - max(written) / 1e9
        if silent < SILENT_SECONDS:
            raise LedgerInUse(
                f"Ledger '{location}' was written {silent:.0f} s ago by query {newest.query} from another place. Stop "
                f"that query; {SILENT_SECONDS:.0f} s later the ledger is free."
            )


def in_use(location: str, newest: Generation, where: str) -> LedgerInUse:
    """The error for a second writer beside a live one."""
    return LedgerInUse(
        f"Ledger '{location}' is being written by query {newest.query} of {where}. Stop it first, or use a ledger of "
        "its own for each query; if it has ended, call detect_duplicates again."
    )


def taken_over(location: str, ours: Generation, newest: Generation) -> LedgerInUse:
    """The error for a writer that comes back after another one."""
    return LedgerInUse(
        f"Ledger '{location}' has been taken over from query {ours.query} by query {newest.query} (generation "
        f"{newest.number}). Start again from the ledger as it is now; only one may write it at a time."
    )


def claimed_at_once(location: str, ours: Generation, rival: Generation) -> LedgerInUse:
    """The error for the slower of two writers that claim the same generation."""
    if ours.query == rival.query:
        return second_operator(location, ours.query)
    return LedgerInUse(
        f"Ledger '{location}' was claimed by query {rival.query} at the same moment as by query {ours.query}. Stop one "
        "of the two, then start again."
    )


def second_operator(location: str, query: str) -> LedgerInUse:
    """The error for a second call of `detect_duplicates` in one query."""
    return LedgerInUse(
        f"Ledger '{location}' is written by another detect_duplicates of the same query {query}. Give each a ledger of "
        "its own, or unite the streams before one detect_duplicates. If the query was restarted, call it again first."
    )
