from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

import object_stores
from cluster import FILE_MANAGER, QUICK_JVM, Cluster, standalone_cluster
from object_stores import Server
from suites import TESTS, forbid_processes, is_slow

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# How long an example takes says nothing where any process may stand still for seconds.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

_LONGEST = ("spark", "clients", "administration", "staged", "dedup", "cli", "serve", "history")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones, and let the longest come first.

    Where tests run in two processes, neither is left alone with the longest at the end.
    """
    for item in items:
        if is_slow(item.path, _fixtures_of(item)):
            item.add_marker("slow")
    order = {name: at for at, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))


def _fixtures_of(item: pytest.Item) -> dict[str, Path]:
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return {
        name: Path(definition.func.__code__.co_filename)
        for name, definitions in known.items()
        for definition in definitions
        if hasattr(definition.func, "__code__") and definition.func.__code__.co_filename.startswith(str(TESTS))
    }


@pytest.fixture(autouse=True)
def _only_slow_tests_start_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """`make test-fast` leaves slow tests out, so no other may start Spark, a browser or a command."""
    if request.node.get_closest_marker("slow") is not None:
        yield
        return
    with forbid_processes(request.node.nodeid):
        yield


_TOGETHER = ("tests/clients/", "tests/serve/staged/", "tests/administration/")
"""Their tests share a service, whose start takes long: they are run by the same process."""


class _Sharing(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return next((folder for folder in _TOGETHER if scope.startswith(folder)), scope)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Sharing | None:
    """Share tests out by files, and by folders where they have something in common."""
    return _Sharing(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """What a test starts gets the default for these signals, though the tests were started with nohup or by `sh … &`.

    A signal that is ignored stays ignored in a new process; one that has a handler gets its default. The handler does
    nothing, so the tests themselves go on ignoring it.
    """
    ignored = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Commands that are run in the test's own process set theirs."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for nearly all tests. Tasks may fail three times."""
    builder = (
        SparkSession.builder.master("local[2,4]")
        .appName("oncebus-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")
        .config(*FILE_MANAGER)
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK_JVM.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One standalone cluster for all tests that need one; it runs one application at a time."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def object_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """The server of a kind of object store, 's3' or 'azure': started when it is first asked for, one for all tests."""
    with ExitStack() as stack:

        @cache
        def server(kind: str) -> Server:
            return stack.enter_context(object_stores.server(kind, tmp_path_factory.mktemp(kind)))

        yield server


@pytest.fixture(params=["s3", "azure"])
def object_store(request: pytest.FixtureRequest, object_servers: Callable[[str], Server]) -> Server:
    """Each kind of object store."""
    return object_servers(request.param)
