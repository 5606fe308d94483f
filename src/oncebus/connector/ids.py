"""Derives the MessageId of a row that has none, so that a repeated task or batch sends the same ids again.

Spark runs a task again when it fails, when a stage is retried, and after a restart of the driver. The broker's
duplicate detection drops the second copy of a message only if its MessageId is the same. So the id depends only on
values that are the same in every attempt: the query, the number of the micro-batch, and the content of the row.

Why the content, and not the position of the row: after a shuffle, Spark gives a repeated task the same rows in a
different order. With an id from the position, a row that was not sent yet can get the id of one that was: the broker
would drop it, and it would be lost. With an id from the content, the order does not matter.

Why not the partition: a batch that is repeated after a restart may be cut differently, because the cluster has fewer
cores. Equal rows of a partition are counted, so each of them has an id of its own, and it does not matter which of them
is which. Equal rows of different partitions get the same ids. A task cannot know of them, so `find_shared` looks for
them when all tasks have ended, and the batch fails. Its repetition with equal rows in one partition has the same ids,
and those that were missing.

If a repeated task computes a different content (`rand()`, `uuid()`, the time of day), its rows get new ids, and are
sent again. That is a duplicate, but never a loss. Such rows need a column `message_id`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

_DIGEST_SIZE = 16
_DIGEST = np.dtype(f"S{_DIGEST_SIZE}")


class Ids:
    """Gives ids to the rows of one partition of one batch.

    `origin` names the query and the batch, or the write. It is part of the digest. `prefix` begins every id: it makes
    them readable.
    """

    def __init__(self, origin: Iterable[str], prefix: str) -> None:
        self._key = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        for part in origin:
            _add(self._key, part)
        self._prefix = prefix
        self._seen: Counter[bytes] = Counter()

    def next_for(self, row: Mapping[str, object]) -> str:
        """Return the id of a row. Columns with null do not count, so that adding a column does not change ids."""
        digest = self._key.copy()
        for name, value in sorted(row.items()):
            if value is not None:
                _add(digest, name)
                _add(digest, value)
        content = digest.digest()
        self._seen[content] += 1
        first, copies = first_id(self._prefix, content), self._seen[content]
        return first if copies == 1 else f"{first}-{copies}"

    def contents(self) -> bytes:
        """Return the digests of the different rows so far, one after the other, for `find_shared`."""
        return b"".join(self._seen)


class Shared(NamedTuple):
    """A content that several partitions have, and the number of such contents."""

    content: bytes
    partitions: list[int]
    total: int


def first_id(prefix: str, content: bytes) -> str:
    """Return the id of the first row with a content."""
    return f"{prefix}-{content.hex()}"


def find_shared(partitions: Sequence[bytes]) -> Shared | None:
    """Return a content that is in more than one partition, given the `contents` of all of them; None if there is none.

    It takes 40 bytes of memory for each row.
    """
    digests = np.frombuffer(b"".join(partitions), _DIGEST)
    # Numbers are sorted ten times as fast as bytes, and few digests begin alike.
    heads = digests.view(np.uint64)[::2]
    similar = digests[np.isin(heads, _find_repeated(heads))]
    again = _find_repeated(similar)
    if not len(again):
        return None
    holders = [at for at, each in enumerate(partitions) if again[0] in np.frombuffer(each, _DIGEST)]
    # NumPy takes zeros at the end for padding.
    return Shared(bytes(again[0]).ljust(_DIGEST_SIZE, b"\0"), holders, len(again))


def _find_repeated(values: np.ndarray) -> np.ndarray:
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _add(digest: hashlib.blake2b, value: object) -> None:
    """Add a value with its type and length, so that no two different sequences of values give the same bytes."""
    if isinstance(value, dict):
        _add(digest, len(value))
        for key in sorted(value):
            _add(digest, key)
            _add(digest, value[key])
        return
    content = _encode(value)
    kind = type(value).__name__.encode()
    digest.update(b"%d %s %d " % (len(kind), kind, len(content)))
    digest.update(content)


def _encode(value: object) -> bytes:
    """Return bytes that depend neither on the session's time zone nor on the version of Python."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        # Not `repr`: it shows a character as it is only if this Python's version of Unicode has it.
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat().encode()
    return repr(value).encode()
