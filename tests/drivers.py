"""Drivers of Spark: sessions set up for tests, and drivers in processes of their own, which a test can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pyspark.sql import SparkSession

from cluster import FILE_MANAGER, QUICK_JVM

TESTS = Path(__file__).parent


def quiet_session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session without log output, for this machine."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config(*FILE_MANAGER)
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def start_driver(
    module: str, arguments: Sequence[object], errors: IO[bytes] | int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a module of the tests in a process group of its own. `errors` takes its standard error."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=TESTS,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **QUICK_JVM, **(environment or {})},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )


def kill_driver(process: subprocess.Popen[bytes]) -> None:
    """Kill a driver, its JVM and the Python workers at the same instant."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def committed(*checkpoints: Path) -> int:
    """Return how many batches the queries with these checkpoints have committed."""
    folders = (checkpoint / "commits" for checkpoint in checkpoints)
    return sum(name.name.isdigit() for folder in folders if folder.exists() for name in folder.iterdir())
