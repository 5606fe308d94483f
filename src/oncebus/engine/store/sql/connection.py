"""The one connection to the store's file: opening it, its transactions, and the meaning of its errors."""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from oncebus.engine.store.errors import StoreError, StoreFull, StoreInUse, StoreMismatch
from oncebus.engine.store.sql.schema import APPLICATION, TABLES, VERSION
from oncebus.model.entities.names import session_key

_PAGE_BYTES = 4096
_CACHE_KIB = 64 * 1024
_PAGES_BEFORE_CHECKPOINT = 8192
_LARGEST_IDLE_LOG = 64 * 1024 * 1024
_TOGETHER = (500, *(2**power for power in range(8, -1, -1)))
_MARKS = {length: ", ".join("?" * length) for length in _TOGETHER}
_STATEMENTS_KEPT = 256
_T = TypeVar("_T")

Execute = Callable[..., sqlite3.Cursor]
Conflict = sqlite3.IntegrityError
"""A row has a value that another one has in a unique index."""

# SQLite reports an exhausted quota as a failed write, and a full disk at its shared index as a failed resize.
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split values for statements that take many at a time.

    The parts have few different lengths, so few statements are needed.
    """
    at = 0
    for size in _TOGETHER:
        while len(values) - at >= size:
            yield values[at : at + size]
            at += size


def lists(values: Sequence[_T]) -> Iterator[tuple[str, Sequence[_T]]]:
    """Split values for conditions with IN. Yield the placeholders and the values for each statement.

    The lists have few different lengths: the last value fills up the last list.
    """
    for at in range(0, len(values), _TOGETHER[0]):
        some = values[at : at + _TOGETHER[0]]
        length = min(1 << (len(some) - 1).bit_length(), _TOGETHER[0])
        yield _MARKS[length], some if length == len(some) else [*some, *[some[-1]] * (length - len(some))]


class Connection:
    """Runs statements, with `execute` and `executemany`, and transactions.

    A table that keeps changes in memory registers hooks: `before_commit` writes them out, `after_commit` keeps them,
    and `after_rollback` discards them.
    """

    def __init__(self, database: sqlite3.Connection, path: str) -> None:
        self._database = database
        self.path = path
        self.execute = database.execute
        self.executemany = database.executemany
        self.before_commit: list[Callable[[], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.after_rollback: list[Callable[[], None]] = []
        self._inside = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], start: int) -> Self:
        """Open the file, or create it. A new store gets the position `start`."""
        path = os.fspath(path)
        database = sqlite3.connect(
            path, isolation_level=None, timeout=0, check_same_thread=False, cached_statements=_STATEMENTS_KEPT
        )
        try:
            database.create_function("session_key", 1, _session_key, deterministic=True)
            # SQLite holds the lock as long as the file is open, so that no second gateway can write to it.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            database.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")
            database.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_LOG}")
            database.execute("PRAGMA temp_store = MEMORY")
            _make_or_check(database, path, start)
        except BaseException as error:
            database.close()
            _raise_meaning(error, path)
            raise
        return cls(database, path)

    def execute_values(self, start: str, marks: str, rows: Iterable[tuple[Any, ...]], end: str = "") -> None:
        """Run a statement that takes rows of values, with many rows at a time. `marks` are the placeholders of one row.

        Each statement releases the interpreter's lock, and it takes long to get it back from other threads. With one
        statement for each row, a row takes about a hundred times as long while the gateway is busy.
        """
        for some in portions(list(rows)):
            statement = f"{start} {', '.join([marks] * len(some))} {end}"
            self.execute(statement, list(itertools.chain.from_iterable(some)))

    def close(self) -> None:
        """Close the file. An open transaction is rolled back."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes of the block durable when it ends, or none of them if it fails."""
        if self._inside:
            raise StoreError(f"Store '{self.path}' is already in a transaction. Group the calls into one block.")
        self._inside = True
        try:
            self.execute("BEGIN IMMEDIATE")
            yield
            for hook in self.before_commit:
                hook()
            self.execute("COMMIT")
        except BaseException as error:
            # After some errors, such as a full disk, SQLite has already rolled back.
            with suppress(sqlite3.Error):
                if self._database.in_transaction:
                    self.execute("ROLLBACK")
            for hook in self.after_rollback:
                hook()
            _raise_meaning(error, self.path)
            raise
        else:
            for hook in self.after_commit:
                hook()
        finally:
            self._inside = False

    def need_transaction(self) -> None:
        """Raise `StoreError` unless a transaction is open: a change outside of one would commit on its own."""
        if not self._inside:
            raise StoreError(
                f"Store '{self.path}' is changed outside of a transaction. Use 'with store.transaction():'."
            )


def _session_key(session: str | None) -> str | None:
    return None if session is None else session_key(session)


def _make_or_check(database: sqlite3.Connection, path: str, start: int) -> None:
    database.execute("BEGIN IMMEDIATE")
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables:
        for statement in TABLES.split(";"):
            database.execute(statement)
        database.execute("INSERT INTO progress VALUES ('position', ?)", (start,))
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
    elif application != APPLICATION:
        raise StoreMismatch(f"File '{path}' is a database, but not a delivery store. Give another path.")
    elif version != VERSION:
        raise StoreMismatch(
            f"Store '{path}' has version {version}; this Oncebus reads and writes version {VERSION}. "
            "Use the Oncebus that wrote it."
        )
    database.execute("COMMIT")


def _raise_meaning(error: BaseException, path: str) -> None:
    """Raise a `StoreError` that the caller can act on if there is one for this failure. Otherwise do nothing."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        raise StoreFull(f"Store '{path}' has no room: {error.strerror}. Make room; nothing was changed.") from error
    if not isinstance(error, sqlite3.Error):
        return
    code = getattr(error, "sqlite_errorcode", None)
    if code in _FULL:
        raise StoreFull(f"Store '{path}' has no room: {error}. Make room; nothing was changed.") from error
    if code is not None and code & 0xFF in _BUSY:
        raise StoreInUse(f"Store '{path}' is open in another process. Stop that one first.") from error
    if code == sqlite3.SQLITE_NOTADB:
        raise StoreMismatch(f"File '{path}' is not a delivery store. Give another path.") from error
