"""Random lives of a ledger agree with the reference model, on one machine and on a cluster that loses executors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster import QUICK_JVM, Cluster
from tests.object_stores import Server
from tests.spark.lives import Life
from tests.spark.test_places import use_store

SCRIPT = Path(__file__).parent / "life.py"


def test_a_life(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    Life(spark, tmp_path, seed).live(epochs=3)


@pytest.mark.torture
def test_many_lives(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    batches = 0
    for each in range(seed, seed + 25):
        life = Life(spark, tmp_path / str(each), each)
        life.folder.mkdir()
        life.live(epochs=6)
        batches += life.batches
    print(f"{batches} batches")


@pytest.mark.torture
def test_lives_over_an_object_store(
    spark: SparkSession, object_store: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    use_store(spark, object_store, tmp_path / "cache", monkeypatch)
    for each in range(seed, seed + 4):
        life = Life(spark, tmp_path / str(each), each, ledger=object_store.new_location())
        life.folder.mkdir()
        life.live(epochs=5)


@pytest.mark.torture
@pytest.mark.parametrize("offset", range(4))
def test_a_life_on_a_cluster_that_loses_executors(cluster: Cluster, tmp_path: Path, seed: int, offset: int) -> None:
    seed += offset
    chance = random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), cluster.master, str(tmp_path), str(seed)],
        env=os.environ | QUICK_JVM | cluster.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        killed = 0
        while process.poll() is None:
            # Real processes have no clock that we could move, so a kill comes at an arbitrary moment.
            time.sleep(chance.uniform(3, 10))
            killed += cluster.kill_executor(chance)
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-6000:]
        assert killed, "no executor was killed"
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
