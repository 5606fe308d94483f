"""The log in PostgreSQL: one row for each commit, which any number of gateways append.

An append is one call of a function in the database, and nothing holds the head's lock across a round trip. Numbers and
times in a frame are the gateway's own; the database says by how much they are off, and readers add that.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from oncebus.engine.inbox import InboxError, InboxFull, Row
from oncebus.engine.inbox.frame import encode_frame
from oncebus.engine.inbox.rows import pack
from oncebus.engine.postgres.log_reader import PostgresReader
from oncebus.engine.postgres.log_schema import CLOCK_WRONG, STALE, TOO_LATE
from oncebus.model.messages import NOBODY, PARTITION_SHIFT
from oncebus.postgres import DatabaseAway, DatabaseError, DatabaseFull, Link
from oncebus.values.errors import NOT_READY, ErrorKind

RESOLVE_SECONDS = 2.0
"""How long an append whose answer got lost tries to learn whether it is there. The sender waits."""
_PAUSE_SECONDS = 0.1
_APPEND = "SELECT * FROM append_rows(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RESOLVE = "SELECT * FROM resolve_append(?, ?)"


class LogBusy(InboxError):
    """The database did not accept the rows now: it is away, or something changed. Retry."""

    kind = ErrorKind.BUSY
    told = NOT_READY


class CatalogueStale(LogBusy):
    """Another gateway has published a newer version of the catalogue. Load it, check the rows again, and repeat."""


class ClockWrong(LogBusy):
    """This machine's clock is ahead of the database's, or far behind it."""


class Appended(NamedTuple):
    """Where a commit is, and by how much the numbers and times in its frame are off."""

    commit: int
    position: int
    shift: int
    entities: list[int]
    parts: list[int]
    bases: list[int]


class PostgresLog:
    """The writer of one gateway. See `Log`."""

    def __init__(self, url: str, shards: int) -> None:
        self._url = url
        self._link = Link(url)
        self.shards = shards
        self._gateway = os.urandom(16).hex()
        # The number of the last append that was tried, and whether nobody knows yet if it is there.
        self._turn = 0
        self._is_unknown = False
        # Spreads rows without a key over the shards.
        self._appended = 0
        self.last_commit = int(self._link.value("SELECT last_commit FROM head"))
        self.last_bytes = 0

    @property
    def is_torn(self) -> bool:
        """Return whether rows that `append` refused may be in the log after all."""
        return self._is_unknown

    @property
    def size(self) -> int:
        """Return about how many bytes all commits take."""
        return self.last_bytes

    def append(self, rows: Sequence[Row], catalogue: int) -> int:
        """Make rows durable and then readable, as one commit, and return its number. See `Log.append`.

        The rows get the numbers and times that they have in the log. Raises `CatalogueStale` or `ClockWrong` if the
        database refuses them, `LogBusy` if it is away; rows that got no answer may then be there, see `is_torn`.
        """
        if self._is_unknown:
            self._resolve_unknown()
        places = [(row["entity"], row["sequence"] >> PARTITION_SHIFT) for row in rows]
        counts = Counter[tuple[int, int]]()
        ranked: list[Row] = []
        for row, place in zip(rows, places, strict=True):
            if row["entity"] == NOBODY:
                ranked.append(row)
                continue
            counts[place] += 1
            ranked.append({**row, "sequence": (place[1] << PARTITION_SHIFT) + counts[place]})
        pieces = pack(ranked, self._appended, self.shards)
        frame = encode_frame(pieces, 0, catalogue, self._appended, len(rows), self.shards)
        # A pulse alone has no time of its own: it is that of an earlier message.
        times = [row["time"] for row in rows if row["entity"] != NOBODY]
        self._turn += 1
        entities, parts = [entity for entity, _ in counts], [part for _, part in counts]
        given = (self._gateway, self._turn, catalogue, min(times, default=None), max(times, default=None), len(rows))
        done = self._call((*given, entities, parts, list(counts.values()), frame, len(frame)))
        self._appended += len(rows)
        self.last_commit, self.last_bytes = done.commit, len(frame)
        bases = dict(zip(zip(done.entities, done.parts, strict=True), done.bases, strict=True))
        for row, place, in_frame in zip(rows, places, ranked, strict=True):
            if place in bases:
                row["sequence"] = in_frame["sequence"] + bases[place]
                row["time"] += done.shift
        return done.commit

    def delete_below(self, commit: int) -> None:
        """Delete commits up to this one."""
        self._link.execute("DELETE FROM log_commit WHERE number <= ?", (commit,))

    def reader(self) -> PostgresReader:
        """Return a reader of its own for the caller."""
        return PostgresReader(self._url)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _call(self, values: tuple[object, ...]) -> Appended:
        try:
            return Appended._make(self._link.execute(_APPEND, values).fetchone() or ())
        except DatabaseAway as error:
            self._is_unknown = True
            found = self._resolve_for_a_while(error)
            if found is None:
                raise LogBusy(f"Database '{self._link.place}' went away; the messages are not accepted") from error
            return found
        except DatabaseFull as error:
            raise InboxFull(str(error)) from error
        except DatabaseError as error:
            raise _meaning(error) from error

    def _resolve_unknown(self) -> None:
        """Learn whether the last append is there. From now on it is, or never will be."""
        try:
            self._resolve()
        except DatabaseError as error:
            raise LogBusy(str(error)) from error

    def _resolve_for_a_while(self, cause: DatabaseError) -> Appended | None:
        """Return where the last append is; None if it never will be there. Raises `LogBusy` if nobody answers."""
        end = time.monotonic() + RESOLVE_SECONDS
        while True:
            try:
                return self._resolve()
            except DatabaseError as error:
                if time.monotonic() >= end:
                    raise LogBusy(str(error)) from cause
                time.sleep(_PAUSE_SECONDS)

    def _resolve(self) -> Appended | None:
        found = self._link.execute(_RESOLVE, (self._gateway, self._turn)).fetchone()
        self._is_unknown = False
        return None if found is None or found[0] is None else Appended._make(found)


def _meaning(error: DatabaseError) -> LogBusy | InboxError:
    for mark, kind in ((STALE, CatalogueStale), (CLOCK_WRONG, ClockWrong), (TOO_LATE, LogBusy)):
        if mark in str(error):
            return kind(str(error))
    return InboxError(str(error))
