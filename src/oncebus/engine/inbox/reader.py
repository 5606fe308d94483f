"""The reader of an inbox. Any number of readers, in any process, can read while one process writes."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from oncebus.engine.inbox.durable import NAME, read_durable
from oncebus.engine.inbox.errors import InboxDamaged
from oncebus.engine.inbox.frame import BadFrame, check_piece, decode_piece
from oncebus.engine.inbox.segment import (
    HEADER_BYTES,
    Cursor,
    Place,
    damaged,
    decode_segment_header,
    list_segments,
    segment_path,
)
from oncebus.model.messages import LogRow
from oncebus.values import disk
from oncebus.values.watching import Watch

LOCK = "lock"
_FORGET_AT_ONCE = 1024


class Commit(NamedTuple):
    """The header of a commit. `length` is the length of the whole commit in bytes."""

    number: int
    catalogue: int
    place: Place
    rows: int
    length: int


class InboxReader:
    """Reads the durable commits of an inbox. It changes nothing, and the folder need not exist yet.

    Two threads must not use it at once.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.path.abspath(folder)
        self._durable = 0
        # The headers from commit `_first` on that have been read.
        self._first = 1
        self._known: list[Commit] = []
        self._cursor: Cursor | None = None
        self._watch: Watch | None = None

    def durable(self) -> int:
        """Return the last commit that may be read; 0 if there is none or the file `durable` is torn.

        It never decreases.

        After a crash of the machine, a new reader may see fewer commits than before, until a writer opens the inbox.
        """
        self._durable = max(self._durable, read_durable(self._folder) or 0)
        return self._durable

    def wait(self, after: int, seconds: float) -> None:
        """Return when there is a commit after `after`, or when `seconds` have passed."""
        end = time.monotonic() + seconds
        if self._watch is None:
            self._watch = Watch(self._folder, os.path.join(self._folder, LOCK), overwritten=NAME)
        while self.durable() <= after and (left := end - time.monotonic()) > 0:
            self._watch.wait(left)

    def shards(self) -> int | None:
        """Return how many shards each commit is split into; None while there is no inbox."""
        segments = list_segments(self._folder)
        if not segments:
            return None
        path = segment_path(self._folder, segments[-1])
        return decode_segment_header(memoryview(disk.map_file(path)).cast("B"), path, segments[-1]).shards

    def plan(
        self,
        after: int,
        most_rows: int,
        most_bytes: int,
        weight: Callable[[Commit], int] = lambda commit: commit.length,
    ) -> int:
        """Return the last commit of a micro-batch that begins with `after` + 1; `after` if there is no new commit.

        The micro-batch has at most `most_rows` rows and `most_bytes` bytes, but at least one commit. `weight` returns
        how many bytes to count for a commit. Reads only headers, each once, and forgets those before `after`.
        """
        durable = self.durable()
        if durable <= after:
            return after
        rows = length = 0
        last = after
        while last < durable:
            known = self._frame(last + 1, durable)
            rows += known.rows
            length += weight(known)
            if last > after and (rows > most_rows or length > most_bytes):
                break
            last += 1
        behind = after + 1 - self._first
        if behind > _FORGET_AT_ONCE:
            del self._known[:behind]
            self._first += behind
        return last

    def forget(self, commit: int) -> None:
        """Drop the places of commits up to this one, which will not be read again."""
        self.plan(commit, 0, 0)

    def rows(self, first: int, last: int) -> int:
        """Return how many rows the durable commits `first` to `last` have. Reads only headers that `plan` did not."""
        return sum(self._frame(commit, max(last, self._durable)).rows for commit in range(first, last + 1))

    def length(self, commit: int) -> int:
        """Return how many bytes a durable commit has in its file."""
        return self._frame(commit, max(commit, self._durable)).length

    def catalogues(self, first: int, last: int) -> set[int]:
        """Return the versions of the catalogue that the durable commits `first` to `last` name. Reads only headers."""
        return {self._frame(commit, max(last, self._durable)).catalogue for commit in range(first, last + 1)}

    def oldest(self) -> int | None:
        """Return the first commit that still exists, or the next one if none does; None while there is no inbox."""
        return min(list_segments(self._folder), default=None)

    def locate(self, commit: int) -> Place:
        """Return the file and offset of a durable commit. With it, `read` in another process need not search."""
        return self._frame(commit, max(commit, self._durable)).place

    def read(
        self, first: int, last: int, shards: Collection[int] | None = None, place: Place | None = None
    ) -> Iterator[LogRow]:
        """Yield the rows of the commits `first` to `last`, inclusive: commit by commit, shard by shard.

        `last` must be durable. `shards` defaults to all. `place` is the result of `locate(first)`, if known. Verifies
        the rows of each shard; raises `InboxDamaged` if some are missing or have changed.
        """
        if first > last:
            return
        cursor = Cursor(self._folder, first, place or self.locate(first))
        while cursor.commit <= last:
            frame, at, data = cursor.next(last)
            for shard in range(len(frame.pieces)) if shards is None else sorted(shards):
                if shard >= len(frame.pieces):
                    reason = f"has {len(frame.pieces)} shards, not shard {shard}"
                    raise damaged(cursor.path, frame.commit, at.offset, reason)
                if frame.pieces[shard][1] == 0:
                    continue
                try:
                    check_piece(data, at.offset, frame, shard)
                    yield from decode_piece(data, at.offset, frame, shard)
                except BadFrame as error:
                    raise damaged(cursor.path, frame.commit, at.offset, error) from error

    def _frame(self, commit: int, durable: int) -> Commit:
        if self._cursor is None or not self._first <= commit <= self._cursor.commit:
            self._begin_at(commit)
        assert self._cursor is not None
        while self._cursor.commit <= commit:
            frame, place, _ = self._cursor.next(durable)
            self._known.append(Commit(frame.commit, frame.catalogue, place, frame.rows, frame.length))
        return self._known[commit - self._first]

    def _begin_at(self, commit: int) -> None:
        """Start reading headers at the beginning of the segment that contains a commit."""
        segments = list_segments(self._folder)
        at = bisect.bisect_right(segments, commit)
        if at == 0:
            begin = f"its oldest segment begins with commit {segments[0]}" if segments else "it has no segments"
            raise InboxDamaged(f"Commit {commit} of inbox '{self._folder}' is missing: {begin}")
        self._first = segments[at - 1]
        self._known = []
        self._cursor = Cursor(self._folder, self._first, Place(self._first, HEADER_BYTES))
