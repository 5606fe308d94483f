"""Recovers an inbox when a writer opens it."""

from __future__ import annotations

import os
from typing import NamedTuple

from oncebus.engine.inbox.durable import read_durable
from oncebus.engine.inbox.errors import InboxDamaged, InboxError
from oncebus.engine.inbox.frame import BadFrame, Frame, check_piece, decode_frame
from oncebus.engine.inbox.segment import (
    HEADER_BYTES,
    damaged,
    decode_segment_header,
    encode_segment_header,
    list_segments,
    segment_path,
)
from oncebus.values import disk


class Recovered(NamedTuple):
    """Where the writer continues: the last segment, and the end of its last frame."""

    segment: int
    end: int
    last_commit: int
    next_position: int


def recover(folder: str, shards: int) -> Recovered:
    """Truncate the last segment after its last complete frame, durably. In a new inbox, create the first segment.

    Raises `InboxDamaged` instead of truncating a durable commit, and `OSError` if the files cannot be read or written.
    """
    announced = read_durable(folder) or 0
    segments = list_segments(folder)
    if not segments:
        if announced:
            raise InboxDamaged(f"Inbox '{folder}' has lost its segments: commit {announced} was durable")
        disk.publish(folder, os.path.basename(segment_path(folder, 1)), [encode_segment_header(shards, 1, 1)])
        return Recovered(1, HEADER_BYTES, 0, 1)
    path = segment_path(folder, segments[-1])
    data = memoryview(disk.map_file(path)).cast("B")
    header = decode_segment_header(data, path, segments[-1])
    if header.shards != shards:
        raise InboxError(f"Inbox '{folder}' has {header.shards} shards, not {shards}. The number cannot be changed")
    end = HEADER_BYTES
    unannounced = None
    commit, position = header.commit, header.position
    while end < len(data):
        try:
            frame = _whole_frame(data, end, commit)
        except BadFrame as error:
            if commit <= announced or _is_followed(data, end, commit):
                raise damaged(path, commit, end, error) from error
            break
        if commit > announced and unannounced is None:
            unannounced = end
        end += frame.length
        position += frame.rows
        commit += 1
    if commit <= announced:
        raise damaged(path, commit, end, "ends")
    _cut_and_sync(path, data, end if unannounced is None else unannounced, end)
    disk.sync(folder)
    return Recovered(segments[-1], end, commit - 1, position)


def _whole_frame(data: memoryview, offset: int, commit: int) -> Frame:
    frame = decode_frame(data, offset)
    if frame.commit != commit:
        raise BadFrame(f"has commit {frame.commit}")
    for shard in range(len(frame.pieces)):
        check_piece(data, offset, frame, shard)
    return frame


def _is_followed(data: memoryview, offset: int, commit: int) -> bool:
    """Return whether another frame follows an incomplete frame.

    If so, the incomplete frame was durable once and is damaged.
    """
    try:
        frame = decode_frame(data, offset)
        return decode_frame(data, offset + frame.length).commit == commit + 1
    except BadFrame:
        return False


def _cut_and_sync(path: str, data: memoryview, unannounced: int, end: int) -> None:
    descriptor = disk.open_file(path)
    try:
        # If the last writer died after a failed fsync, the kernel may hold pages that look written and are not. Write
        # them again.
        disk.write(descriptor, bytes(data[unannounced:end]), unannounced)
        disk.truncate(descriptor, end)
    finally:
        os.close(descriptor)
