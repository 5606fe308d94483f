"""What the parts of a store share: its file, its transactions and where its lock tokens come from."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from oncebus.store.sql.connection import Connection
from oncebus.store.sql.tables import Tables

DUPLICATES_KEPT = 100_000
DUPLICATES_AGE = 7 * 24 * 3600 * 1_000_000
_TOKEN_BYTES = 16


class StoreBase:
    """One file, one process, one thread at a time. No clock is read: `now` is an argument.

    Whatever changes something is called inside `with store.transaction():`; its answer may be told to others once the
    block has ended well. Where the block fails, nothing in it has happened. A full disk raises `StoreFull`.
    """

    def __init__(
        self, connection: Connection, random: Callable[[int], bytes], duplicates_kept: int, duplicates_age: int
    ) -> None:
        """For `open` alone."""
        self._connection = connection
        self._tables = Tables.over(connection)
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
        """Open the store at a path, made where missing. Takes no longer for many messages than for none.

        A new store expects the inbox commit `start` + 1 first. `random` gives so many bytes for a lock token. Raises
        `StoreInUse` where another process has it, `StoreMismatch` where the file is another's or newer.
        """
        return cls(Connection.open(path, start), random, duplicates_kept, duplicates_age)

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        """A block whose calls become durable together, with one fsync, as it ends. Blocks do not nest."""
        return self._connection.transaction()

    def _change(self) -> Tables:
        """The tables, to change them. Raises `StoreError` outside of a transaction."""
        self._connection.need_transaction()
        return self._tables

    def _token(self) -> bytes:
        return self._random(_TOKEN_BYTES)
