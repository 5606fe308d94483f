from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from oncebus.engine.postgres.store import open_store
from oncebus.postgres import DatabaseRefused, Link
from tests.postgres_server import PostgresServer


def test_several_may_create_the_tables_at_once(postgres: PostgresServer) -> None:
    url = postgres.make_schema()
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: open_store(url), range(4)):
            assert store.progress.position() == 0
            store.close()


def test_another_version_is_refused_with_what_to_do(postgres: PostgresServer) -> None:
    url = postgres.make_schema()
    open_store(url).close()
    link = Link(url)
    link.execute("UPDATE oncebus SET version = version + 1")
    with pytest.raises(DatabaseRefused, match=r"has version .* that wrote it"):
        open_store(url)
    link.close()


def test_a_database_of_others_is_left_alone(postgres: PostgresServer) -> None:
    url = postgres.make_schema()
    link = Link(url)
    link.execute("CREATE TABLE mine (x INT)")
    with pytest.raises(DatabaseRefused, match="1 other tables"):
        open_store(url)
    assert link.value("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()") == 1
    link.close()


def test_missing_rights_are_told(postgres: PostgresServer) -> None:
    schema = postgres.make_schema()
    postgres.run("CREATE ROLE guest LOGIN")
    with pytest.raises(DatabaseRefused, match=r"has no schema for us|permission denied"):
        open_store(schema.replace("oncebus@", "guest@"))


def test_a_schema_that_does_not_exist_is_told(postgres: PostgresServer) -> None:
    with pytest.raises(DatabaseRefused, match="has no schema for us"):
        open_store(postgres.url(schema="missing"))
