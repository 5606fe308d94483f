"""The base of `Store`: its file, its transactions and its lock tokens."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from oncebus.engine.store.sampling import Sampler
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.tables import Tables

DUPLICATES_KEPT = 100_000
DUPLICATES_AGE = 7 * 24 * 3600 * 1_000_000
_TOKEN_BYTES = 16


class StoreBase:
    """One file, used by one process and one thread at a time. The store reads no clock: `now` is an argument.

    Call methods that change something inside `with store.transaction():`. Do not use their results outside before the
    block has ended: if the block fails, it has changed nothing. A full disk raises `StoreFull`.
    """

    def __init__(
        self, connection: Connection, random: Callable[[int], bytes], duplicates_kept: int, duplicates_age: int
    ) -> None:
        """Use `open` instead."""
        self._connection = connection
        self._tables = Tables.over(connection)
        self._sampler = Sampler(self._tables)
        self._random = random
        self._duplicates_kept = duplicates_kept
        self._duplicates_age = duplicates_age

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        start: int = 0,
        random: Callable[[int], bytes] = os.urandom,
        duplicates_kept: int = DUPLICATES_KEPT,
        duplicates_age: int = DUPLICATES_AGE,
    ) -> Self:
        """Open the store at a path, or create it. The time this takes does not depend on the number of messages.

        A new store expects the inbox commit `start` + 1 first. `random` returns the given number of random bytes, for
        lock tokens. Raises `StoreInUse` if another process has the store open, `StoreMismatch` if the file is not a
        store or is from a newer version.
        """
        return cls(Connection.open(path, start), random, duplicates_kept, duplicates_age)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context whose calls become durable together, with one fsync, when it ends. Contexts do not nest."""
        return self._connection.transaction()

    def _change(self) -> Tables:
        """Return the tables for a change. Raises `StoreError` outside of a transaction."""
        self._connection.need_transaction()
        return self._tables

    def _token(self) -> bytes:
        return self._random(_TOKEN_BYTES)

    def _tokens(self, count: int) -> list[bytes]:
        together = self._random(_TOKEN_BYTES * count)
        return [together[at : at + _TOKEN_BYTES] for at in range(0, len(together), _TOKEN_BYTES)]
