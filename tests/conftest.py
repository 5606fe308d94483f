from __future__ import annotations

import gc
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests import object_servers as servers
from tests.cluster import QUICK_JVM, Cluster, standalone_cluster
from tests.drivers import quiet_session
from tests.object_stores import Server
from tests.postgres_server import PostgresServer, postgres_server
from tests.properties import leave_out_slow_tests, search_from
from tests.suites import TESTS, forbid_processes, is_slow

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The official clients ask for the platform. Python runs `uname` for the first answer and keeps it.
platform.platform()

# pytest adds its handler to loggers that do not propagate. PySpark's, which it makes for errors in a query, would then
# change the format of this handler, for all later tests.
PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[method-assign, assignment]

# azure-servicebus does not close the sockets of lost connections.
_LOSES_SOCKETS = ("clients", "connector", "testing")
_LONGEST = (
    "spark",
    "clients",
    "connector",
    "recipes",
    "administration",
    "staged",
    "dedup",
    "cli",
    "serve",
    "history",
    "doctor",
    "simulation",
)

# Spark interprets the plan of a few rows in less time than it compiles it. Services and commands compile, as for users.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="search at random from this seed: more examples, other kills")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("same" if config.option.seed is None else "random")
    if "not slow" in config.option.markexpr:
        leave_out_slow_tests()

    own = os.getpid()

    def leave(*_: object) -> None:
        """Leave through the running test and its fixtures: they end the processes that they have started."""
        if os.getpid() != own:
            os._exit(128 + signal.SIGTERM)
        if config.pluginmanager.hasplugin("dsession"):
            for worker in " ".join(each.read_text() for each in Path("/proc/self/task").glob("*/children")).split():
                os.kill(int(worker), signal.SIGTERM)
        pytest.exit("SIGTERM", returncode=128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect lost sockets at the end of their module, while their warnings are ignored, and not in the next test."""
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and item.path.parent.name in _LOSES_SOCKETS:
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests, ignore the warnings that nobody can prevent, and run the longest tests first.

    If two processes run the tests, neither should be left with the longest test at the end.
    """
    for item in items:
        if is_slow(item.path, _fixtures_of(item)):
            item.add_marker("slow")
        if item.path.parent.name in _LOSES_SOCKETS:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    if config.option.seed is not None:
        search_from(config.option.seed, items)
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
    """`make test-fast` skips slow tests, so no other test may start Spark, a browser or a command."""
    if request.node.get_closest_marker("slow") is not None:
        yield
        return
    with forbid_processes(request.node.nodeid):
        yield


_TOGETHER = (
    (
        "tests/spark/",
        "tests/detection/test_keys.py",
        "tests/doctor/test_examination.py",
        "tests/pipeline/test_cluster.py",
        "tests/pipeline/test_query.py",
        "tests/programs/dedup/test_frames.py",
    ),
    ("tests/clients/",),
    ("tests/connector/",),
    ("tests/programs/serve/staged/",),
    ("tests/administration/",),
    ("tests/frameworks/",),
    ("tests/recipes/",),
)
"""The tests below each of these share a service that starts slowly, such as Spark, so one process runs all of them."""


class _Sharing(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope.startswith("tests/simulation/"):
            # Long computations that share nothing.
            return nodeid
        return next((places[0] for places in _TOGETHER if scope.startswith(places)), scope)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Sharing | None:
    """Distribute tests by file, or by folder if its tests share a service."""
    return _Sharing(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Let processes that a test starts handle these signals by default, even under nohup or `sh … &`.

    A new process inherits an ignored signal, but gets the default for a handled one. The handler does nothing, so the
    tests themselves still ignore the signal.
    """
    ignored = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Restore the umask after each test: commands that run inside the test process change it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of all that a test draws by itself. It is the same in each run, unless `--seed` searches at random."""
    given: int | None = pytestconfig.option.seed
    return 1 if given is None else given


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for nearly all tests. A task may fail three times."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK_JVM.items():
            patch.setenv(name, value)
        session = quiet_session("local[2,4]", {"spark.sql.session.timeZone": "Asia/Kolkata", **_INTERPRETED})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One standalone cluster for all tests that need one; it runs one application at a time."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One database server for all tests that need one. Each test makes a schema of its own there."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def object_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Return a function that gives the server for 's3' or 'azure'. It starts on first use, and all tests share it."""
    with ExitStack() as stack:

        @cache
        def server(kind: str) -> Server:
            return stack.enter_context(servers.server(kind, tmp_path_factory.mktemp(kind)))

        yield server


@pytest.fixture(params=["s3", "azure"])
def object_store(request: pytest.FixtureRequest, object_servers: Callable[[str], Server]) -> Server:
    """Return the server of each kind of object store."""
    return object_servers(request.param)
