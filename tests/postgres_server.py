"""A PostgreSQL server of the tests' own: Debian's programs, a temporary folder, a Unix socket."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

_MISSING = "The tests need PostgreSQL's server. Install it, for example with 'sudo apt-get install postgresql'."
_QUICK = {"fsync": "off", "shared_buffers": "32MB", "max_connections": "200", "listen_addresses": "''"}


def _program(name: str) -> str:
    places = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True), *_on_path(name)]
    if not places:
        raise FileNotFoundError(_MISSING)
    return str(places[0])


def _on_path(name: str) -> list[Path]:
    found = shutil.which(name)
    return [] if found is None else [Path(found)]


class PostgresServer:
    """A running server. Its databases are lost when it is closed."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._names = itertools.count(1)
        # Root may not run the server.
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        given = ["--auth=trust", "--username=oncebus", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", f"--pgdata={self._data}", *given)
        settings = {**_QUICK, "unix_socket_directories": f"'{folder}'", **settings}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it lets clients in."""
        self._run("pg_ctl", "start", "--wait", f"--pgdata={self._data}", f"--log={self._folder / 'log'}")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: `immediate` is like a crash, `fast` ends it properly."""
        self._run("pg_ctl", "stop", "--wait", f"--pgdata={self._data}", f"--mode={mode}")

    def url(self, database: str = "postgres", schema: str = "public", user: str = "oncebus") -> str:
        """Return the URL of a schema."""
        options = quote(f"-csearch_path={schema}")
        return f"postgresql://{user}@/{database}?host={quote(str(self._folder), safe='')}&options={options}"

    def make_schema(self) -> str:
        """Make an empty schema and return its URL."""
        schema = f"test{next(self._names)}"
        self.run(f"CREATE SCHEMA {schema}")
        return self.url(schema=schema)

    def run(self, statement: str) -> list[Any]:
        """Run a statement as the owner of everything. Return its rows, if it has any."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def end_connections(self) -> None:
        """End all connections but our own, as an administrator does."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )

    def _run(self, program: str, *arguments: str) -> None:
        # A server keeps its output open, so that must be a file.
        with (self._folder / "output").open("w+") as output:
            done = subprocess.run(
                [_program(program), *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                **self._user,
            )
            output.seek(0)
            assert done.returncode == 0, output.read()


@contextmanager
def postgres_server(**settings: str) -> Iterator[PostgresServer]:
    """Run a server for a block."""
    # A short path: that of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    try:
        server = PostgresServer(folder, **settings)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
