"""Rewrites rows of an inbox. Only for a repair; never call it while a broker runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pyarrow as pa

from oncebus.engine.inbox.errors import write_failure
from oncebus.engine.inbox.frame import BadFrame, Frame, check_piece, decode_piece, encode_frame
from oncebus.engine.inbox.segment import HEADER_BYTES, Cursor, Place, damaged, list_segments, segment_path
from oncebus.values import disk

Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns as many rows to replace a batch, with the same keys. Returns the same object to change nothing."""


def rewrite_rows(folder: str | os.PathLike[str], after: int, last: int, change: Change) -> int:
    """Change the rows of the commits after `after`, up to `last`, which is the last commit of the inbox.

    Return how many rows the changed commits have. The caller must have the inbox open as its writer, and append nothing
    afterwards. Each segment is replaced atomically: if the process is killed, call this again. Raises `InboxDamaged`,
    and `InboxFull` if the disk is full.
    """
    path, rows = os.path.abspath(folder), 0
    for first, following in itertools.pairwise([*list_segments(path), last + 1]):
        if following - 1 > after:
            rows += _rewrite_segment(path, first, range(after + 1, following), change)
    return rows


def _rewrite_segment(folder: str, first: int, commits: range, change: Change) -> int:
    cursor = Cursor(folder, first, Place(first, HEADER_BYTES))
    pieces: list[bytes | memoryview] = []
    rows = 0
    while cursor.commit < commits.stop:
        frame, at, buffer, data = cursor.next(commits.stop - 1)
        if not pieces:
            pieces.append(data[:HEADER_BYTES])
        kept = data[at.offset : at.offset + frame.length]
        changed = _changed(frame, at, buffer, data, cursor.path, change) if frame.commit in commits else None
        rows += 0 if changed is None else frame.rows
        pieces.append(kept if changed is None else changed)
    if rows:
        path = segment_path(folder, first)
        try:
            disk.publish(folder, os.path.basename(path), pieces)
        except OSError as error:
            raise write_failure(path, error) from error
    return rows


def _changed(frame: Frame, at: Place, buffer: pa.Buffer, data: memoryview, path: str, change: Change) -> bytes | None:
    """Return the frame with its changed rows; None if nothing changes."""
    shards = [shard for shard, (_, length, _) in enumerate(frame.pieces) if length]
    try:
        for shard in shards:
            check_piece(data, at.offset, frame, shard)
    except BadFrame as error:
        raise damaged(path, frame.commit, at.offset, error) from error
    before = [decode_piece(buffer, at.offset, frame, shard) for shard in shards]
    after = [change(batch) for batch in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return None
    batches = list(zip(shards, after, strict=True))
    return encode_frame(batches, frame.commit, frame.catalogue, frame.position, frame.rows, len(frame.pieces))
