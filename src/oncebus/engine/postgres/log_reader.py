"""The reader of the log in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from oncebus.engine.inbox import InboxDamaged
from oncebus.engine.inbox.frame import BadFrame, check_piece, decode_frame, decode_piece
from oncebus.model.messages import LogRow
from oncebus.model.packed import Bases
from oncebus.postgres import Link

_LOOK_SECONDS = 0.02
_AT_ONCE_BYTES = 16 << 20
_HEADS_AT_ONCE = 1024


class LogCommit(NamedTuple):
    """What a commit's row says without its frame."""

    number: int
    catalogue: int
    rows: int
    length: int


class PostgresReader:
    """Reads the log while others append to it. Two threads must not use it at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known_link: Link | None = None
        self._known: dict[int, LogCommit] = {}

    def durable(self) -> int:
        """Return the last commit that may be read. All before it may be read too."""
        return int(self._link.value("SELECT last_commit FROM head"))

    def wait(self, after: int, seconds: float) -> None:
        """Return when there is a commit after `after`, or when `seconds` have passed."""
        end = time.monotonic() + seconds
        while self.durable() <= after and (left := end - time.monotonic()) > 0:
            self._link.wait("oncebus", min(left, _LOOK_SECONDS))

    def plan(
        self,
        after: int,
        most_rows: int,
        most_bytes: int,
        weight: Callable[[LogCommit], int] = lambda commit: commit.length,
    ) -> int:
        """Return the last commit of a micro-batch that begins after `after`. See `InboxReader.plan`."""
        self._known = {number: known for number, known in self._known.items() if number > after}
        durable = self.durable()
        rows = length = 0
        last = after
        while last < durable:
            known = self._head(last + 1, durable)
            rows += known.rows
            length += weight(known)
            if last > after and (rows > most_rows or length > most_bytes):
                break
            last += 1
        return last

    def forget(self, commit: int) -> None:
        """Drop what is known about commits up to this one: they will not be read again."""
        self._known = {number: known for number, known in self._known.items() if number > commit}

    def rows(self, first: int, last: int) -> int:
        """Return how many rows the commits `first` to `last` have."""
        return sum(self._head(commit, last).rows for commit in range(first, last + 1))

    def length(self, commit: int) -> int:
        """Return how many bytes a commit takes."""
        return self._head(commit, commit).length

    def read(self, first: int, last: int, shards: Collection[int] | None = None) -> Iterator[LogRow]:
        """Yield the rows of the commits `first` to `last`: commit by commit, shard by shard.

        Raises `InboxDamaged` if one is missing or has changed.
        """
        while first <= last:
            end = first
            length = self._head(first, last).length
            while end < last and (length := length + self._head(end + 1, last).length) <= _AT_ONCE_BYTES:
                end += 1
            found = self._link.execute(
                "SELECT number, catalogue, position, shift, entities, parts, bases, frame FROM log_commit "
                "WHERE number >= ? AND number <= ? ORDER BY number",
                (first, end),
            ).fetchall()
            for row in found:
                if row[0] != first:
                    break
                yield from _decode(row, shards)
                first += 1
            if first <= end:
                raise self._missing(first)

    def close(self) -> None:
        """Close the connection."""
        if self._known_link is not None:
            self._known_link.close()
            self._known_link = None

    @property
    def _link(self) -> Link:
        if self._known_link is None:
            self._known_link = Link(self._url)
        return self._known_link

    def _head(self, commit: int, last: int) -> LogCommit:
        if commit not in self._known:
            rows = self._link.execute(
                "SELECT number, catalogue, rows, length FROM log_commit WHERE number >= ? AND number <= ? "
                "ORDER BY number LIMIT ?",
                (commit, max(last, commit), _HEADS_AT_ONCE),
            )
            self._known |= {row[0]: LogCommit._make(row) for row in rows}
            if commit not in self._known:
                raise self._missing(commit)
        return self._known[commit]

    def _missing(self, commit: int) -> InboxDamaged:
        return InboxDamaged(f"Commit {commit} of the log in database '{self._link.place}' is missing")


def _decode(row: tuple[Any, ...], shards: Collection[int] | None) -> Iterator[LogRow]:
    """Yield the rows of a commit, with the positions, numbers and times that the database gave them."""
    number, catalogue, position, shift, entities, parts, sequences, stored = row
    data = memoryview(stored)
    bases = Bases(shift, dict(zip(zip(entities, parts, strict=True), sequences, strict=True)))
    try:
        frame = decode_frame(data, 0)._replace(commit=number, catalogue=catalogue, position=position)
        for shard in range(len(frame.pieces)) if shards is None else sorted(shards):
            if shard >= len(frame.pieces):
                raise BadFrame(f"has {len(frame.pieces)} shards, not shard {shard}")
            check_piece(data, 0, frame, shard)
            yield from decode_piece(data, 0, frame, shard, bases)
    except BadFrame as error:
        raise InboxDamaged(f"Commit {number} of the log {error}") from error
