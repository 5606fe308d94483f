"""Packs rows of messages, and the results that the pipeline makes of them, into bytes. Numbers are little-endian.

A row. `p` is the number of optional bytes.

    offset   size  what
    0        4     length of the row, with these four bytes
    4        2     what is there: 1 key, 2 scheduled, 4 expires, 8 origin, 16 session, 32 partition key, 64 body,
                   128 body file
    6        2     hops
    8        4     position, less that of the frame
    12       8     entity, signed
    20       8     sequence number, signed
    28       8     time, signed
    36       8     window, signed
    44       8     size, signed
    52       2     length of the message id
    54       2     length of the session
    56       2     length of the partition key
    58       2     length of the name of the body file
    60       4     length of the head
    64       4     length of the body
    68       p     the key (16 bytes), scheduled (8), expires (8), origin's entity and sequence number (8 each), as
                   far as they are there
    68+p           message id, session, partition key, name of the body file, in UTF-8; head; body

A result. `r` is the number of optional bytes.

    offset   size  what
    0        4     length of the result, with these four bytes
    4        1     fate
    5        1     what is there: 1 destination, 2 original's sequence number, 4 original's time, 8 reason,
                   16 description, 32 the row; without the row it is that of the result before
    6        2     length of the reason
    8        4     length of the description
    12       8     position
    20       8     commit
    28       8     version of the catalogue
    36       r     destination, original's sequence number, original's time (8 bytes each), as far as they are there
    36+r           reason, description, in UTF-8; the row, whose position is 0

The length of everything is checked when it is unpacked. Whoever stores packed rows adds a checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from oncebus.model.messages import KEY_BYTES, PARTITION_SHIFT, Fate, LogRow, Result

_ROW = struct.Struct("<IHHIqqqqqHHHHII")
_RESULT = struct.Struct("<IBBHIqqq")
_NUMBER = struct.Struct("<q")
_ORIGIN = struct.Struct("<qq")
_KEY, _SCHEDULED, _EXPIRES, _FROM, _SESSION, _PARTITION_KEY, _BODY, _BODY_FILE = (1 << bit for bit in range(8))
_OPTIONAL = _KEY | _SCHEDULED | _EXPIRES | _FROM
_DESTINATION, _SEQUENCE, _TIME, _REASON, _DESCRIPTION, _WITH_ROW = (1 << bit for bit in range(6))
_FATES = tuple(Fate)


class BadRows(ValueError):
    """Bytes are not packed rows. The text says what is wrong."""


class Bases(NamedTuple):
    """What to add to the numbers and times of rows that were packed before these were known.

    `sequences` has a number for each (entity, partition); others get nothing.
    """

    time: int
    sequences: Mapping[tuple[int, int], int]


def pack_row(
    offset: int,
    entity: int,
    sequence: int,
    time: int,
    key: bytes | None,
    window: int,
    scheduled: int | None,
    expires: int | None,
    message_id: str,
    session: str | None,
    partition_key: str | None,
    origin_entity: int | None,
    origin_sequence: int | None,
    hops: int,
    size: int,
    head: bytes,
    body: bytes | None,
    body_file: str | None,
) -> bytes:
    """Return the bytes of a row, whose position is `offset` after that of its frame. Raises `ValueError` or
    `struct.error` for values that do not fit."""
    flags, optional, texts = 0, b"", message_id.encode()
    id_length, session_length, partition_length, file_length = len(texts), 0, 0, 0
    if key is not None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"Key {key!r} has {len(key)} bytes instead of {KEY_BYTES}")
        flags, optional = _KEY, key
    if scheduled is not None:
        flags |= _SCHEDULED
        optional += _NUMBER.pack(scheduled)
    if expires is not None:
        flags |= _EXPIRES
        optional += _NUMBER.pack(expires)
    if origin_entity is not None:
        flags |= _FROM
        optional += _ORIGIN.pack(origin_entity, origin_sequence)
    if session is not None:
        flags |= _SESSION
        encoded = session.encode()
        session_length = len(encoded)
        texts += encoded
    if partition_key is not None:
        flags |= _PARTITION_KEY
        encoded = partition_key.encode()
        partition_length = len(encoded)
        texts += encoded
    if body_file is not None:
        flags |= _BODY_FILE
        encoded = body_file.encode()
        file_length = len(encoded)
        texts += encoded
    if body is None:
        body = b""
    else:
        flags |= _BODY
    fixed = _ROW.pack(
        _ROW.size + len(optional) + len(texts) + len(head) + len(body),
        flags,
        hops,
        offset,
        entity,
        sequence,
        time,
        window,
        size,
        id_length,
        session_length,
        partition_length,
        file_length,
        len(head),
        len(body),
    )
    return b"".join((fixed, optional, texts, head, body))


def unpack_rows(
    data: bytes, position: int, commit: int, catalogue: int, bases: Bases | None = None
) -> Iterator[LogRow]:
    """Yield the rows of a frame. `position`, `commit` and `catalogue` are those of the frame. Raises `BadRows`."""
    at = 0
    while at < len(data):
        row, at = _unpack_row(data, at, position, commit, catalogue)
        if bases is not None:
            number = row.sequence + bases.sequences.get((row.entity, row.sequence >> PARTITION_SHIFT), 0)
            row = row._replace(sequence=number, time=row.time + bases.time)
        yield row


def _unpack_row(data: bytes, at: int, position: int, commit: int, catalogue: int) -> tuple[LogRow, int]:
    """Return the row that begins at an offset, and the offset of its end."""
    try:
        (
            length,
            flags,
            hops,
            offset,
            entity,
            sequence,
            time,
            window,
            size,
            id_length,
            session_length,
            partition_length,
            file_length,
            head_length,
            body_length,
        ) = _ROW.unpack_from(data, at)
        end = at + _ROW.size
        key = scheduled = expires = origin_entity = origin_sequence = session = partition_key = body_file = None
        if flags & _OPTIONAL:
            if flags & _KEY:
                key = data[end : end + KEY_BYTES]
                end += KEY_BYTES
            if flags & _SCHEDULED:
                (scheduled,) = _NUMBER.unpack_from(data, end)
                end += 8
            if flags & _EXPIRES:
                (expires,) = _NUMBER.unpack_from(data, end)
                end += 8
            if flags & _FROM:
                origin_entity, origin_sequence = _ORIGIN.unpack_from(data, end)
                end += 16
        begin, end = end, end + id_length
        message_id = data[begin:end].decode()
        if flags & _SESSION:
            begin, end = end, end + session_length
            session = data[begin:end].decode()
        if flags & _PARTITION_KEY:
            begin, end = end, end + partition_length
            partition_key = data[begin:end].decode()
        if flags & _BODY_FILE:
            begin, end = end, end + file_length
            body_file = data[begin:end].decode()
        begin, end = end, end + head_length
        head = data[begin:end]
        begin, end = end, end + body_length
    except (struct.error, UnicodeDecodeError) as error:
        raise BadRows(f"has no row at offset {at} of its rows ({error})") from error
    if end != at + length or end > len(data):
        raise BadRows(f"has a row of {end - at} bytes instead of {length} at offset {at} of its rows")
    row = LogRow(
        position + offset,
        commit,
        catalogue,
        entity,
        sequence,
        time,
        key,
        window,
        scheduled,
        expires,
        message_id,
        session,
        partition_key,
        origin_entity,
        origin_sequence,
        hops,
        size,
        head,
        data[begin:end] if flags & _BODY else None,
        body_file,
    )
    return row, end


def pack_results(results: Iterable[Result]) -> bytes:
    """Return the bytes of results. A row that several results in succession share is packed once.

    Raises `ValueError` or `struct.error` for values that do not fit.
    """
    pieces: list[bytes] = []
    last: LogRow | None = None
    for row, fate, destination, reason, description, original_sequence, original_time in results:
        flags, optional, texts, reason_length, description_length = 0, b"", b"", 0, 0
        if destination is not None:
            flags = _DESTINATION
            optional = _NUMBER.pack(destination)
        if original_sequence is not None:
            flags |= _SEQUENCE
            optional += _NUMBER.pack(original_sequence)
        if original_time is not None:
            flags |= _TIME
            optional += _NUMBER.pack(original_time)
        if reason is not None:
            flags |= _REASON
            texts = reason.encode()
            reason_length = len(texts)
        if description is not None:
            flags |= _DESCRIPTION
            encoded = description.encode()
            description_length = len(encoded)
            texts += encoded
        packed = b""
        if row is not last:
            flags |= _WITH_ROW
            packed = pack_row(0, *row[3:])
            last = row
        length = _RESULT.size + len(optional) + len(texts) + len(packed)
        pieces += (
            _RESULT.pack(length, fate, flags, reason_length, description_length, *row[:3]),
            optional,
            texts,
            packed,
        )
    return b"".join(pieces)


def unpack_results(data: bytes) -> list[Result]:
    """Return the results in some bytes. Raises `BadRows`."""
    results: list[Result] = []
    row: LogRow | None = None
    begin = 0
    while begin < len(data):
        try:
            (length, fate, flags, reason_length, description_length, *place) = _RESULT.unpack_from(data, begin)
            at = begin + _RESULT.size
            destination = original_sequence = original_time = reason = description = None
            if flags & _DESTINATION:
                (destination,) = _NUMBER.unpack_from(data, at)
                at += 8
            if flags & _SEQUENCE:
                (original_sequence,) = _NUMBER.unpack_from(data, at)
                at += 8
            if flags & _TIME:
                (original_time,) = _NUMBER.unpack_from(data, at)
                at += 8
            if flags & _REASON:
                reason = data[at : at + reason_length].decode()
                at += reason_length
            if flags & _DESCRIPTION:
                description = data[at : at + description_length].decode()
                at += description_length
            if flags & _WITH_ROW:
                row, at = _unpack_row(data, at, *place)
            if row is None:
                raise BadRows(f"has a result without a row at offset {begin} of its results")
            kind = _FATES[fate]
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise BadRows(f"has no result at offset {begin} of its results ({error})") from error
        if at != begin + length or at > len(data):
            raise BadRows(f"has a result of {at - begin} bytes instead of {length} at offset {begin} of its results")
        results.append(Result(row, kind, destination, reason, description, original_sequence, original_time))
        begin = at
    return results
