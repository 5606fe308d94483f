"""A query gives the same verdicts on a standalone cluster, through Spark Connect and over object stores.

Machines that do not share the folder of a ledger get an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncebus.ledger import Ledger
from tests.cluster import QUICK_JVM, Cluster, daemon, free_port, wait_for
from tests.doctor.commands import doctor, not_ok
from tests.object_stores import Server
from tests.spark.streams import Stream, expected
from tests.spark.test_streaming import history_of

SCRIPT = Path(__file__).parent / "elsewhere.py"


def run_elsewhere(how: str, url: str, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), how, url, str(folder)],
        env=os.environ | QUICK_JVM | environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    errors = [line for line in done.stderr.decode().splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(errors)[-3000:]


@pytest.mark.release
def test_on_a_standalone_cluster(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    history = history_of(2)
    stream = Stream(spark, tmp_path / "stream")
    stream.write(history)
    run_elsewhere("cluster", cluster.master, stream.folder, **cluster.environment)
    assert stream.found() == expected(history)


@contextmanager
def spark_connect(folder: Path) -> Iterator[str]:
    """Run a server of Spark Connect for the block, and yield its address."""
    port = free_port()
    server = [
        "org.apache.spark.deploy.SparkSubmit",
        "--master", "local[2]",
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.driver.host=127.0.0.1",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.sql.shuffle.partitions=2",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]  # fmt: skip
    with daemon(folder / "server.log", *server):
        wait_for(folder / "server.log", "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_through_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(2)
    stream = Stream(spark, tmp_path / "stream")
    stream.write(history)
    with spark_connect(tmp_path) as url:
        run_elsewhere("connect", url, stream.folder)
    assert stream.found() == expected(history)


@pytest.mark.release
def test_all_of_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(4)
    stream = Stream(spark, tmp_path / "stream")
    stream.write(history)
    with spark_connect(tmp_path) as url:
        run_elsewhere("all-of-connect", url, stream.folder)
        found = doctor(tmp_path, "--remote", url, "--ledger", str(stream.ledger))
        assert set(not_ok(found)) == {"Unix sockets"}
    assert stream.found() == expected(history)


def use_store(spark: SparkSession, store: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and Spark's workers reach the store."""
    for name, value in (store.environment | {"ONCEBUS_LEDGER_CACHE": str(cache)}).items():
        monkeypatch.setenv(name, value)
        # Pass the address to the workers too: they have the environment of the time when the session started.
        monkeypatch.setitem(spark.sparkContext.environment, name, value)


@pytest.mark.parametrize("kind", ["s3", pytest.param("azure", marks=pytest.mark.release)])
def test_over_an_object_store(
    spark: SparkSession,
    kind: str,
    object_servers: Callable[[str], Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query restarts in between."""
    object_store = object_servers(kind)
    use_store(spark, object_store, tmp_path / "cache", monkeypatch)
    history = history_of(4)
    location = object_store.new_location()
    stream = Stream(spark, tmp_path / "stream", {"ledger": location, "parts": 2})
    stream.write(history[:2])
    stream.run()
    stream.write(history[2:], first=2)
    stream.run()
    assert stream.found() == expected(history)
    summary = Ledger.open(location).summary()
    assert summary.generation == 2
    assert summary.ids > 0
    assert list((tmp_path / "cache").rglob("run-*"))
