"""Derives the MessageId of a row that has none, so that a repeated task sends the same ids again.

Spark runs a task again when it fails, when a stage is retried, and after a restart of the driver. The broker's
duplicate detection drops the second copy of a message only if its MessageId is the same. So the id depends only on
values that are the same in every attempt: the query, the number of the micro-batch, the partition, and the content of
the row.

Why the content, and not the position of the row: after a shuffle, Spark gives a repeated task the same rows in a
different order. With an id from the position, a row that was not sent yet can get the id of one that was: the broker
would drop it, and it would be lost. With an id from the content, the order does not matter. Equal rows of a partition
are counted, so each of them has an id of its own, and it does not matter which of them is which.

If a repeated task computes a different content (`rand()`, `uuid()`, the time of day), its rows get new ids, and are
sent again. That is a duplicate, but never a loss. Such rows need a column `message_id`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

_DIGEST_SIZE = 16


class Ids:
    """Gives ids to the rows of one partition of one batch.

    `origin` names the query and the batch, or the write. It is part of the digest. `prefix` begins every id: it makes
    them readable.
    """

    def __init__(self, origin: Iterable[str], partition: int, prefix: str) -> None:
        self._key = hashlib.blake2b(digest_size=_DIGEST_SIZE)
        for part in (*origin, str(partition)):
            _add(self._key, part)
        self._prefix = f"{prefix}-{partition}-"
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
        _add(digest, self._seen[content])
        return self._prefix + digest.hexdigest()


def _add(digest: hashlib.blake2b, value: object) -> None:
    """Add a value with its type and length, so that no two different sequences of values give the same bytes."""
    if isinstance(value, dict):
        _add(digest, len(value))
        for key in sorted(value):
            _add(digest, key)
            _add(digest, value[key])
        return
    content = value if isinstance(value, bytes) else repr(value).encode()
    kind = type(value).__name__.encode()
    digest.update(b"%d %s %d " % (len(kind), kind, len(content)))
    digest.update(content)
