"""Rows and failures for the tests of the inbox."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from oncebus.engine.inbox import InboxReader, Row


def row(number: int, *, entity: int = 7, keyed: bool = True, body: bytes = b"body", time: int | None = None) -> Row:
    """Return a row that its sequence number distinguishes from others."""
    return Row(
        entity=entity,
        sequence=number,
        time=1_000_000 + number if time is None else time,
        key=hashlib.blake2b(str(number).encode(), digest_size=16).digest() if keyed else None,
        window=600_000_000,
        message_id=f"ödeme-{number}",
        session=None if number % 2 else f"s{number}",
        hops=0,
        size=len(body),
        head=b"",
        body=body,
    )


def contents(reader: InboxReader, first: int, last: int, shards: list[int] | None = None) -> list[tuple[int, ...]]:
    """Return (position, commit, catalogue, sequence) of all rows, by position."""
    return sorted((row.position, row.commit, row.catalogue, row.sequence) for row in reader.read(first, last, shards))


@contextmanager
def unsynced() -> Iterator[None]:
    """Skip fsync in the block."""
    with mock.patch("os.fsync"), mock.patch("os.fdatasync"):
        yield


@contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    """Let one write stop after `size` bytes, or earlier if it is shorter, and the next one find a full disk."""
    write = os.pwrite
    calls = 0

    def short(descriptor: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1 or size == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, memoryview(data)[:size], offset)

    with mock.patch("os.pwrite", short):
        yield


@contextmanager
def disk_that_fails_to_sync() -> Iterator[None]:
    with mock.patch("os.fdatasync", side_effect=OSError(errno.EIO, os.strerror(errno.EIO))):
        yield
