"""Tests the checks on clusters of two executors, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import Cluster

from .commands import doctor, not_ok

pytestmark = [pytest.mark.slow, pytest.mark.torture]


def test_a_local_cluster(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--master", "local-cluster[2,1,1024]", "--ledger", str(tmp_path / "ledger"))
    assert found["passed"]
    # Such a cluster has Spark's default settings.
    assert set(not_ok(found)) == {"Unix sockets", "protection"}
    (executors,) = [each["found"] for each in found["findings"] if each["check"] == "executors"]
    assert executors.startswith("tasks ran on 2, on ")
    assert not (tmp_path / "ledger").exists()


def test_a_standalone_cluster(cluster: Cluster, tmp_path: Path) -> None:
    words = ("--master", cluster.master, "--ledger", str(tmp_path / "ledger"), "--conf", "spark.executor.memory=512m")
    found = doctor(tmp_path, *words, **cluster.environment)
    assert set(not_ok(found)) == {"Unix sockets"}
    (executors,) = [each["found"] for each in found["findings"] if each["check"] == "executors"]
    assert executors.startswith("tasks ran on 2, on ")


def test_executors_that_see_another_folder(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--master", "local-cluster[2,1,1024]", "--ledger", "/proc/self/cwd/ledger")
    assert "ledger: sharing" in not_ok(found)
    assert not found["passed"]
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_room(cluster: Cluster, tmp_path: Path) -> None:
    """The workers have less memory than an executor needs, so Spark never gets one."""
    # Long enough for Spark to start on a busy machine.
    words = ("--master", cluster.master, "--conf", "spark.executor.memory=2g", "--timeout", "60")
    found = doctor(tmp_path, *words, **cluster.environment)
    assert not found["passed"]
    assert not_ok(found)["executors"].startswith("Spark got no executors: ")
