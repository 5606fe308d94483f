"""A connection that is opened again after it was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import psycopg

from oncebus.postgres.connecting import open_connection, tell_place
from oncebus.postgres.errors import DatabaseAway, explain

Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]
_T = TypeVar("_T")


class Link:
    """Runs statements, written with `?` for values. One thread at a time may use it.

    Each statement is durable on its own unless it comes between `begin` and `commit`. All errors are `DatabaseError`s.
    A lost connection raises `DatabaseAway`, and the next statement or transaction opens another one: nothing is
    repeated by itself, and nothing of a transaction runs outside of it.
    """

    def __init__(self, url: str) -> None:
        self.place = tell_place(url)
        self._url = url
        # Statements as the driver wants them. There are few different ones.
        self._written: dict[str, str] = {}
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = open_connection(url)
        self._is_inside = False
        self._listening: psycopg.Connection[tuple[Any, ...]] | None = None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """Run a statement and return what it answers."""
        return self._run(lambda cursor: cursor.execute(self._write(statement), values))

    def value(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row that a statement answers; None if it answers no row."""
        row = self.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        self._run(lambda cursor: cursor.executemany(self._write(statement), rows))

    def begin(self, script: str = "") -> None:
        """Begin a transaction, and run statements without values, in one round trip."""
        self.script(f"BEGIN; {script}")
        self._is_inside = True

    def commit(self) -> None:
        """Make the transaction durable. After `DatabaseAway`, nobody knows whether it is."""
        self.script("COMMIT")
        self._is_inside = False

    def roll_back(self) -> None:
        """End the transaction without a change."""
        self._is_inside = False
        if self._connection is None:
            return
        try:
            self.script("ROLLBACK")
        except Exception:
            # The server rolls back when the connection ends.
            self.close()

    def close(self) -> None:
        """Close the connection. An open transaction is rolled back."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def wait(self, channel: str, seconds: float) -> None:
        """Return when somebody notifies a channel, or when `seconds` have passed."""
        try:
            connection = self._live()
            if connection is not self._listening:
                connection.execute(f"LISTEN {channel}")
                self._listening = connection
                return
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def script(self, script: str) -> None:
        """Run statements without values, in one round trip."""
        try:
            self._live().execute(script)
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def _run(self, what: Callable[[Cursor], _T]) -> _T:
        try:
            return what(self._live().cursor(binary=True))
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def _live(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            if self._is_inside:
                raise DatabaseAway(f"Database '{self.place}' is away: the connection was lost in a transaction")
            self._connection = open_connection(self._url)
        return self._connection

    def _write(self, statement: str) -> str:
        written = self._written.get(statement)
        if written is None:
            written = self._written[statement] = statement.replace("?", "%s")
        return written

    def _meaning(self, error: psycopg.Error) -> Exception:
        meaning = explain(error, self.place)
        if isinstance(meaning, DatabaseAway):
            self.close()
        return meaning
