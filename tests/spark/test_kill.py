"""A query that is killed at any moment and restarted outputs everything once, as if it had never been killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster import QUICK_JVM
from tests.spark.streams import Stream, expected
from tests.spark.test_streaming import history_of

SCRIPT = Path(__file__).parent / "killed.py"
DEADLINE_SECONDS = 300


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder)],
        env=os.environ | QUICK_JVM,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and the Python workers at the same instant."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def committed(stream: Stream) -> int:
    commits = stream.checkpoint / "commits"
    return sum(name.name.isdigit() for name in commits.iterdir()) if commits.exists() else 0


def kill_again_and_again(spark: SparkSession, folder: Path, kills: int, batches_between: int, seed: int) -> None:
    chance = random.Random(seed)
    # There are far more batches than we wait for, so no query finishes before it is killed, even if the kill is late.
    history = history_of(2 * kills * batches_between, size=30, seed=seed)
    stream = Stream(spark, folder)
    stream.write(history)
    done = 0
    for _ in range(kills):
        process = start(folder)
        deadline = time.monotonic() + DEADLINE_SECONDS
        # Wait for some batches, and then for a fraction of one.
        wanted = committed(stream) + chance.randint(0, 2 * batches_between - 2)
        while committed(stream) < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.5)
        if process.poll() is None:
            done += 1
        kill(process)
    assert done == kills, f"only {done} of {kills} kills hit a running query"
    process = start(folder)
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, errors.decode()[-2000:]
    assert stream.found() == expected(stream.as_cut(history))


def test_killed_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    kill_again_and_again(spark, tmp_path, kills=1, batches_between=2, seed=seed)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_killed_fifty_times(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Each of five histories is killed ten times."""
    kill_again_and_again(spark, tmp_path, kills=10, batches_between=3, seed=seed)
