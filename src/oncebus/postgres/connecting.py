"""Opens connections: their settings, and how values are written and read.

PostgreSQL's text cannot hold NUL, and ids of messages may. So texts are written with an escape that keeps their order:
U+0001 begins a pair, "\\x01\\x30" stands for NUL and "\\x01\\x31" for U+0001 itself.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncebus.postgres.errors import DatabaseAway, DatabaseRefused
from oncebus.values.errors import ErrorKind

OLDEST_SERVER = 14
CONNECT_SECONDS = 2
"""How long to try to reach the server. A sender must have its answer within 3 seconds."""
_STATEMENTS_KEPT = 500
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "oncebus",
    # A server that went silent must not hold a sender.
    "tcp_user_timeout": 3000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
_SETTINGS = (
    "SET client_encoding = 'UTF8'; SET synchronous_commit = on; "
    # A process that is paused inside a transaction must not hold up the others for long.
    "SET idle_in_transaction_session_timeout = '5s'; SET lock_timeout = '30s'"
)


def escape(text: str) -> str:
    """Return a text that PostgreSQL can hold. Escaped texts have the same order."""
    if "\x00" not in text and "\x01" not in text:
        return text
    return text.replace("\x01", "\x011").replace("\x00", "\x010")


def unescape(text: str) -> str:
    """Return the text that was escaped."""
    return text if "\x01" not in text else text.replace("\x010", "\x00").replace("\x011", "\x01")


class _TextDumper(Dumper):
    # An unknown type: the server takes the one that the statement needs.
    oid = 0

    def dump(self, obj: str) -> Buffer:
        return escape(obj).encode()


class _BoolDumper(Dumper):
    # Flags are small numbers in the tables.
    oid = psycopg.adapters.types["int2"].oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescape(bytes(data).decode())


class _BinaryTextLoader(_TextLoader):
    format = pq.Format.BINARY


def _adapt(adapters: AdaptersMap) -> None:
    adapters.register_dumper(str, _TextDumper)
    adapters.register_dumper(bool, _BoolDumper)
    for loader in (_TextLoader, _BinaryTextLoader):
        adapters.register_loader("text", loader)


def tell_place(url: str) -> str:
    """Return the server and the database of a URL, without credentials, for people to read."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "?"
    host, port = parts.get("host") or "localhost", parts.get("port") or 5432
    return f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"


def open_connection(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection on which each statement is a transaction of its own.

    Raises `DatabaseRefused` if the server cannot be used, `DatabaseAway` if it cannot be reached.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        what = f"is no URL of a database: {_line(error)}. Give 'postgresql://user@host/database'."
        raise _refused(what, "?") from None
    place = tell_place(url)
    try:
        connection = psycopg.connect(make_conninfo("", **{**_DEFAULTS, **parts}), autocommit=True)
    except psycopg.OperationalError as error:
        # No server answered, or one that is starting; else it answered that it does not let us in.
        if _is_unreachable(error):
            raise DatabaseAway(f"Database '{place}' is away: {_line(error)}") from error
        raise _refused(f"does not let us in: {_line(error)}", place) from error
    try:
        version = connection.info.server_version // 10_000
        if version < OLDEST_SERVER:
            raise _refused(f"runs PostgreSQL {version}; Oncebus needs {OLDEST_SERVER} or later", place)
        _adapt(connection.adapters)
        connection.prepared_max = _STATEMENTS_KEPT
        connection.execute(_SETTINGS)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_unreachable(error: psycopg.OperationalError) -> bool:
    text = str(error)
    refusals = ("FATAL", "password", "role ", "no pg_hba", "SSL", "certificate")
    starting = ("starting up", "shutting down", "recovery", "too many", "not yet accepting")
    return any(each in text for each in starting) or not any(each in text for each in refusals)


def _refused(what: str, place: str) -> DatabaseRefused:
    error = DatabaseRefused(f"Database '{place}' {what}")
    error.kind = ErrorKind.BAD_REQUEST
    return error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
