from __future__ import annotations

import ast
from pathlib import Path

import pytest

from oncebus.postgres import DatabaseAway, DatabaseConflict, DatabaseError, DatabaseRefused, Link
from tests.postgres_server import PostgresServer

SOURCE = Path(__file__).parents[2] / "src" / "oncebus"


def test_only_one_package_imports_the_driver() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "psycopg" in text else ():
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "psycopg" for name in names):
                found.add(path.relative_to(SOURCE).parts[0])
    assert found == {"postgres"}


def test_texts_and_flags_come_back(postgres: PostgresServer) -> None:
    link = Link(postgres.make_schema())
    link.execute('CREATE TABLE t (a TEXT COLLATE "C", b SMALLINT, c BYTEA, d BIGINT)')
    texts = ["", "\x00", "\x01", "\x00\x01\x00", "\x010", "\x011", "\x02", "a", "a\x00", "a\x01", "ü"]
    link.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(each, True, b"\x00", None) for each in texts])
    assert link.execute("SELECT a, b, c, d FROM t ORDER BY a").fetchall() == [
        (each, 1, b"\x00", None) for each in sorted(texts)
    ]
    assert [link.value("SELECT count(*) FROM t WHERE a = ?", (each,)) for each in texts] == [1] * len(texts)
    link.close()


def test_a_lost_connection_is_opened_again_but_never_inside_a_transaction(postgres: PostgresServer) -> None:
    link = Link(postgres.make_schema())
    link.execute("CREATE TABLE t (a INT UNIQUE)")
    postgres.end_connections()
    with pytest.raises(DatabaseAway, match="is away"):
        link.execute("SELECT 1")
    assert link.value("SELECT 1") == 1
    link.begin()
    link.execute("INSERT INTO t VALUES (1)")
    postgres.end_connections()
    for _ in range(2):
        with pytest.raises(DatabaseAway):
            link.execute("INSERT INTO t VALUES (2)")
    link.roll_back()
    assert link.value("SELECT count(*) FROM t") == 0
    link.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(DatabaseConflict):
        link.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(DatabaseError, match="syntax"):
        link.execute("INSERT VALUES")
    link.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("nonsense", "is no URL of a database"),
        ("postgresql://h/d?what=1", "is no URL of a database"),
        ("postgresql://h/d?host=/nowhere", "is away"),
        ("postgresql://127.0.0.1:1/d", "is away"),
    ],
)
def test_a_wrong_url_has_one_line_without_the_password(url: str, text: str) -> None:
    with pytest.raises(DatabaseError, match=text) as caught:
        Link(url.replace("//", "//me:secret@"))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_user_or_database_is_refused(postgres: PostgresServer) -> None:
    for url in (postgres.url(database="missing"), postgres.url(user="nobody")):
        with pytest.raises(DatabaseRefused, match="does not exist"):
            Link(url)
