"""The connection to a store in one SQLite file."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from typing import Self

from oncebus.engine.store.errors import StoreError, StoreFull, StoreInUse, StoreMismatch
from oncebus.engine.store.sql.connection import Connection
from oncebus.engine.store.sql.schema import APPLICATION, TABLES, VERSION
from oncebus.model.entities.names import session_key

_PAGE_BYTES = 4096
_CACHE_KIB = 64 * 1024
_PAGES_BEFORE_CHECKPOINT = 8192
_LARGEST_IDLE_LOG = 64 * 1024 * 1024
_STATEMENTS_KEPT = 256

# SQLite reports an exhausted quota as a failed write, and a full disk at its shared index as a failed resize.
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class SqliteConnection(Connection):
    """The one connection to the store's file."""

    is_shared = False
    conflict = sqlite3.IntegrityError

    def __init__(self, database: sqlite3.Connection, path: str) -> None:
        super().__init__(path, database.execute, database.executemany)
        self._database = database

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

    def close(self) -> None:
        """Close the file. An open transaction is rolled back."""
        self._database.close()

    def keep_file(self) -> None:
        """See `Connection.keep_file`. Until then, the write-ahead log grows with each change."""
        busy, _, _ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(f"Store '{self.place}' cannot write its changes into its file.")
        self.execute("PRAGMA wal_autocheckpoint = 0")

    def change_file(self) -> None:
        """See `Connection.change_file`."""
        self.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")

    def _begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self.execute("COMMIT")

    def _roll_back(self) -> None:
        # After some errors, such as a full disk, SQLite has already rolled back.
        with suppress(sqlite3.Error):
            if self._database.in_transaction:
                self.execute("ROLLBACK")

    def _raise_meaning(self, error: BaseException) -> None:
        _raise_meaning(error, self.place)


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
