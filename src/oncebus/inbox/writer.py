"""The writer of an inbox: one process appends, and only what is on the disk is told to readers.

A folder holds segments (`oncebus.inbox.segment`), the file `durable` (`oncebus.inbox.durable`) and the file `lock`,
which the writer holds locked and signs for those who wait for commits (`oncebus.watching`).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from oncebus.files import TEMPORARY, make_folder, publish
from oncebus.inbox import durable
from oncebus.inbox.errors import InboxError, InboxInUse, write_failure
from oncebus.inbox.frame import MOST_SHARDS, encode_frame
from oncebus.inbox.marks import Marks, marks_of
from oncebus.inbox.reader import LOCK, InboxReader
from oncebus.inbox.recovery import Recovered, recover
from oncebus.inbox.rows import Row, split
from oncebus.inbox.segment import HEADER_BYTES, encode_segment_header, list_segments, segment_path
from oncebus.watching import sign

SEGMENT_BYTES = 64 << 20


class _Active(NamedTuple):
    first: int
    descriptor: int
    path: str


class InboxWriter:
    """Appends commits to an inbox. Made by `open`; calls must not overlap.

    `append` makes its rows durable and then readable, as one commit, and returns its number. If it raises, its rows
    have not been accepted; while `is_torn` a crash may keep them all the same, never some of them. After any failure
    the same object goes on: it cuts off what was partly written, at once or before it appends again.
    """

    def __init__(self, folder: str, shards: int, segment_bytes: int, resources: ExitStack, found: Recovered) -> None:
        self.folder = folder
        self.shards = shards
        self.last_commit = found.last_commit
        self.next_position = found.next_position
        # How many bytes the newest commit has that this object has appended.
        self.last_bytes = 0
        self._segment_bytes = segment_bytes
        self._sizes = {first: os.path.getsize(segment_path(folder, first)) for first in list_segments(folder)}
        self._active = _open_segment(folder, found.segment)
        self._end = found.end
        self._is_torn = False
        # After a failed fsync the kernel may take pages for written that are not.
        self._is_distrusted = False
        self._durable = os.open(os.path.join(folder, durable.NAME), os.O_WRONLY)
        resources.callback(os.close, self._durable)
        resources.callback(lambda: os.close(self._active.descriptor))
        self._resources = resources.pop_all()

    @classmethod
    def open(cls, folder: str | os.PathLike[str], shards: int, *, segment_bytes: int = SEGMENT_BYTES) -> Self:
        """Open an inbox or make a new one, cutting off a commit that was never answered.

        Raises `InboxInUse` while another writer has it, `InboxDamaged` if commits are lost that were durable, and
        `InboxError` if it has another number of shards.
        """
        if not 0 < shards <= MOST_SHARDS:
            raise InboxError(f"An inbox has 1 to {MOST_SHARDS} shards, not {shards}")
        path = os.path.abspath(folder)
        with ExitStack() as resources:
            try:
                make_folder(path)
                _lock(path, resources)
                sign(os.path.join(path, LOCK))
                for name in os.listdir(path):
                    if name.startswith(TEMPORARY):
                        Path(path, name).unlink()
                found = recover(path, shards)
                publish(path, durable.NAME, [durable.encode_durable(found.last_commit)])
                return cls(path, shards, segment_bytes, resources, found)
            except OSError as error:
                raise write_failure(path, error) from error

    def append(self, rows: Sequence[Row] | pa.RecordBatch, catalogue: int) -> int:
        """Make rows durable in the order given; the commit's number. A batch has the schema `ROW_SCHEMA`.

        Raises `InboxFull` if the disk is full, `RowsRefused` if the rows do not fit the schema, else `InboxError`.
        """
        commit = self.last_commit + 1
        batches = split(rows, commit, catalogue, self.next_position, self.shards)
        frame = encode_frame(batches, commit, catalogue, self.next_position, len(rows), self.shards)
        try:
            if self._is_torn:
                self._mend()
            if self._end >= self._segment_bytes:
                self._roll()
            self._is_torn = True
            _write(self._active.descriptor, frame, self._end)
            self._is_distrusted = True
            os.fdatasync(self._active.descriptor)
            self._is_torn = self._is_distrusted = False
        except OSError as error:
            failure = write_failure(self._active.path, error)
            if self._is_torn:
                # Then what was refused cannot come back, and what belongs to it need not stay on a disk that is full.
                with suppress(OSError):
                    self._mend()
            raise failure from error
        self.last_commit = commit
        self.last_bytes = len(frame)
        self.next_position += len(rows)
        self._end += len(frame)
        self._announce()
        return commit

    def delete_below(self, commit: int) -> None:
        """Delete the segments that hold nothing after a commit. The last segment stays: it knows where to go on."""
        firsts = sorted(self._sizes)
        for first, following in itertools.pairwise(firsts):
            if following - 1 <= commit:
                try:
                    Path(segment_path(self.folder, first)).unlink(missing_ok=True)
                except OSError as error:
                    raise InboxError(
                        f"Inbox file '{segment_path(self.folder, first)}' cannot be deleted: {error.strerror}"
                    ) from error
                del self._sizes[first]

    def unread_marks(self, after: int) -> Marks:
        """The greatest time and sequence numbers in the commits behind `after`, as far as they are still there."""
        oldest = min(self._sizes)
        return marks_of(InboxReader(self.folder).read(max(after + 1, oldest), self.last_commit))

    @property
    def is_torn(self) -> bool:
        """Whether a crash could bring back rows that were refused; also while rows are being written."""
        return self._is_torn

    @property
    def size(self) -> int:
        """How many bytes all segments have. May be asked by another thread than the one that appends."""
        sizes = self._sizes.copy()
        return sum(size for first, size in sizes.items() if first != self._active.first) + self._end

    def close(self) -> None:
        """Let another writer have it."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _announce(self) -> None:
        try:
            _write(self._durable, durable.encode_durable(self.last_commit), 0)
        except OSError as error:
            # The commit stands and is announced with the next one.
            raise write_failure(os.path.join(self.folder, durable.NAME), error) from error

    def _mend(self) -> None:
        """Cut off what the last append left. It is gone from the disk before anything follows it."""
        os.ftruncate(self._active.descriptor, self._end)
        os.fsync(self._active.descriptor)
        if self._is_distrusted:
            self._roll()
            self._is_distrusted = False
        self._is_torn = False

    def _roll(self) -> None:
        """Go on in a new file; it replaces one of the same name that never got a commit."""
        first = self.last_commit + 1
        path = segment_path(self.folder, first)
        header = encode_segment_header(self.shards, first, self.next_position)
        publish(self.folder, os.path.basename(path), [header])
        active = _open_segment(self.folder, first)
        os.close(self._active.descriptor)
        self._sizes[self._active.first] = self._end
        self._sizes[first] = HEADER_BYTES
        self._active = active
        self._end = HEADER_BYTES


def _open_segment(folder: str, first: int) -> _Active:
    path = segment_path(folder, first)
    return _Active(first, os.open(path, os.O_RDWR), path)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]
        offset += written


def _lock(folder: str, resources: ExitStack) -> None:
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o644)
    resources.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InboxInUse(f"Inbox '{folder}' is being written by another process. Stop it first") from error
