"""The writer of an inbox: one process appends, and readers see only what is durable.

A folder contains segments (`oncebus.engine.inbox.segment`), the file `durable` (`oncebus.engine.inbox.durable`) and the
file `lock`. The writer locks the file `lock`, and writes the id of its kernel to it for readers that wait for commits
(`oncebus.values.watching`).
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import NamedTuple, Self

from oncebus.engine.inbox import durable
from oncebus.engine.inbox.errors import InboxError, InboxInUse, write_failure
from oncebus.engine.inbox.frame import MOST_SHARDS, encode_frame
from oncebus.engine.inbox.marks import Marks, marks_of
from oncebus.engine.inbox.reader import LOCK, InboxReader
from oncebus.engine.inbox.recovery import Recovered, recover
from oncebus.engine.inbox.rows import Row, pack
from oncebus.engine.inbox.segment import HEADER_BYTES, encode_segment_header, list_segments, segment_path
from oncebus.values import disk
from oncebus.values.watching import sign

SEGMENT_BYTES = 64 << 20


class _Active(NamedTuple):
    first: int
    descriptor: int
    path: str


class InboxWriter:
    """Appends commits to an inbox. Create it with `open`; calls must not overlap.

    `append` makes its rows durable and then readable, as one commit, and returns its number. If it raises, its rows are
    not accepted. While `is_torn` is true, a crash may still bring back all of them, but never only some. The writer
    stays usable after any failure: it truncates a partly written commit at once, or before it appends again.
    """

    def __init__(self, folder: str, shards: int, segment_bytes: int, resources: ExitStack, found: Recovered) -> None:
        self.folder = folder
        self.shards = shards
        self.last_commit = found.last_commit
        self.next_position = found.next_position
        # The size in bytes of the newest commit that this object has appended.
        self.last_bytes = 0
        self._segment_bytes = segment_bytes
        self._sizes = {first: os.path.getsize(segment_path(folder, first)) for first in list_segments(folder)}
        self._active = _open_segment(folder, found.segment)
        self._end = found.end
        self._is_torn = False
        # After a failed fsync the kernel may consider pages written that are not.
        self._is_distrusted = False
        self._durable = disk.open_file(os.path.join(folder, durable.NAME))
        resources.callback(os.close, self._durable)
        resources.callback(lambda: os.close(self._active.descriptor))
        self._resources = resources.pop_all()

    @classmethod
    def open(cls, folder: str | os.PathLike[str], shards: int, *, segment_bytes: int = SEGMENT_BYTES) -> Self:
        """Open an inbox or create one. Truncates an incomplete commit, whose sender never got an answer.

        Raises `InboxInUse` while another writer has the inbox open, `InboxDamaged` if durable commits are lost, and
        `InboxError` if it has a different number of shards.
        """
        if not 0 < shards <= MOST_SHARDS:
            raise InboxError(f"An inbox has 1 to {MOST_SHARDS} shards, not {shards}")
        path = os.path.abspath(folder)
        with ExitStack() as resources:
            try:
                disk.make_folder(path)
                _lock(path, resources)
                sign(os.path.join(path, LOCK))
                disk.delete_abandoned(path)
                found = recover(path, shards)
                disk.publish(path, durable.NAME, [durable.encode_durable(found.last_commit)])
                return cls(path, shards, segment_bytes, resources, found)
            except OSError as error:
                raise write_failure(path, error) from error

    def append(self, rows: Sequence[Row], catalogue: int) -> int:
        """Make rows durable in the given order, and return the commit's number.

        Raises `InboxFull` if the disk is full, `RowsRefused` if the rows do not fit, and `InboxError` for
        other failures.
        """
        commit = self.last_commit + 1
        pieces = pack(rows, self.next_position, self.shards)
        frame = encode_frame(pieces, commit, catalogue, self.next_position, len(rows), self.shards)
        try:
            if self._is_torn:
                self._truncate()
            if self._end >= self._segment_bytes:
                self._roll()
            self._is_torn = True
            disk.write(self._active.descriptor, frame, self._end)
            self._is_distrusted = True
            disk.sync_data(self._active.descriptor)
            self._is_torn = self._is_distrusted = False
        except OSError as error:
            failure = write_failure(self._active.path, error)
            if self._is_torn:
                # After this the refused rows cannot come back, so the caller may delete their body files, which a full
                # disk needs most.
                with suppress(OSError):
                    self._truncate()
            raise failure from error
        self.last_commit = commit
        self.last_bytes = len(frame)
        self.next_position += len(rows)
        self._end += len(frame)
        self._announce()
        return commit

    def delete_below(self, commit: int) -> None:
        """Delete segments without commits after `commit`. The last segment stays: its header says where to continue."""
        firsts = sorted(self._sizes)
        for first, following in itertools.pairwise(firsts):
            if following - 1 <= commit:
                try:
                    disk.delete(segment_path(self.folder, first))
                except OSError as error:
                    raise InboxError(
                        f"Inbox file '{segment_path(self.folder, first)}' cannot be deleted: {error.strerror}"
                    ) from error
                del self._sizes[first]

    def unread_marks(self, after: int) -> Marks:
        """Return the greatest time and sequence numbers in those commits after `after` that still exist."""
        oldest = min(self._sizes)
        return marks_of(InboxReader(self.folder).read(max(after + 1, oldest), self.last_commit))

    def reader(self) -> InboxReader:
        """Return a reader of this inbox."""
        return InboxReader(self.folder)

    @property
    def is_torn(self) -> bool:
        """Return whether a crash could bring back rows that `append` refused.

        Also true while rows are being written.
        """
        return self._is_torn

    @property
    def size(self) -> int:
        """Return the size of all segments in bytes. Any thread may call it, even while another one appends."""
        sizes = self._sizes.copy()
        return sum(size for first, size in sizes.items() if first != self._active.first) + self._end

    def close(self) -> None:
        """Close the inbox, so that another writer can open it."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _announce(self) -> None:
        try:
            disk.write(self._durable, durable.encode_durable(self.last_commit), 0)
        except OSError as error:
            # The commit is durable anyway, and is announced with the next one.
            raise write_failure(os.path.join(self.folder, durable.NAME), error) from error

    def _truncate(self) -> None:
        """Remove, durably, the rest of a failed append, before anything is written after it."""
        disk.truncate(self._active.descriptor, self._end)
        if self._is_distrusted:
            self._roll()
            self._is_distrusted = False
        self._is_torn = False

    def _roll(self) -> None:
        """Continue in a new segment. It replaces an existing file of the same name, which cannot contain a commit."""
        first = self.last_commit + 1
        path = segment_path(self.folder, first)
        header = encode_segment_header(self.shards, first, self.next_position)
        disk.publish(self.folder, os.path.basename(path), [header])
        active = _open_segment(self.folder, first)
        os.close(self._active.descriptor)
        self._sizes[self._active.first] = self._end
        self._sizes[first] = HEADER_BYTES
        self._active = active
        self._end = HEADER_BYTES


def _open_segment(folder: str, first: int) -> _Active:
    path = segment_path(folder, first)
    return _Active(first, disk.open_file(path), path)


def _lock(folder: str, resources: ExitStack) -> None:
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    resources.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InboxInUse(f"Inbox '{folder}' is being written by another process. Stop it first") from error
