"""The delivery store in PostgreSQL: the same tables, statements and rules as in SQLite.

A transaction that changes something has the store for itself, as in SQLite: it takes a lock first, and reads after
that. So the rules see no change of another gateway while they decide. The server ends a transaction of a gateway that
was paused inside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from oncebus.engine.postgres.schema import check_schema, exclusive_lock
from oncebus.engine.store import DUPLICATES_KEPT, Store, StoreBusy, StoreError, StoreFull
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.store import DUPLICATES_AGE
from oncebus.postgres import (
    DatabaseAway,
    DatabaseConflict,
    DatabaseContended,
    DatabaseError,
    DatabaseFull,
    Link,
)


class PostgresConnection(Connection):
    """A connection to the store's tables. It is opened again when it was lost."""

    is_shared = True
    conflict = DatabaseConflict

    def __init__(self, link: Link) -> None:
        super().__init__(link.place, link.execute, link.executemany)
        self._link = link
        self._lock = exclusive_lock(link)

    def close(self) -> None:
        """Close the connection. An open transaction is rolled back."""
        self._link.close()

    def _begin(self) -> None:
        self._link.begin(self._lock)

    def _commit(self) -> None:
        self._link.commit()

    def _roll_back(self) -> None:
        self._link.roll_back()

    def _raise_meaning(self, error: BaseException) -> None:
        if isinstance(error, DatabaseFull):
            raise StoreFull(str(error)) from error
        if isinstance(error, DatabaseAway | DatabaseContended):
            raise StoreBusy(str(error)) from error
        if isinstance(error, DatabaseError):
            raise StoreError(str(error)) from error


def open_store(
    url: str,
    *,
    start: int = 0,
    random: Callable[[int], bytes] = os.urandom,
    duplicates_kept: int = DUPLICATES_KEPT,
    duplicates_age: int = DUPLICATES_AGE,
) -> Store:
    """Open the store in a database, or create its tables there. Any number of gateways may have it open.

    See `Store.open`. Raises `DatabaseError`.
    """
    link = Link(url)
    try:
        check_schema(link, start)
        return Store(PostgresConnection(link), random, duplicates_kept, duplicates_age)
    except BaseException:
        link.close()
        raise
