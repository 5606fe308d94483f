"""The Python that the workers of the pipeline run, and the clusters that it accepts. No Spark is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncebus.pipeline.query import pipeline_session
from oncebus.spark.ports import ClusterOpen
from oncebus.spark.workers import WorkersDiffer

from .no_spark import without_spark


def test_workers_run_the_python_of_the_pipeline_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set it first, so that monkeypatch restores it after the pipeline has changed it.
    monkeypatch.setenv("PYSPARK_PYTHON", "x")
    monkeypatch.delenv("PYSPARK_PYTHON")
    builder = without_spark(monkeypatch)
    session = pipeline_session("local[2]")
    assert session.sparkContext.pythonExec == sys.executable
    assert not builder.made[0].is_stopped


def test_a_session_with_a_missing_python_is_stopped_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    builder = without_spark(monkeypatch)
    with pytest.raises(WorkersDiffer, match="which does not exist"):
        pipeline_session("local[2]")
    assert [session.is_stopped for session in builder.made] == [True]
    pipeline_session("spark://head:7077", insecure_cluster=True)


MASTER = "spark://head:7077"


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "spark.authenticate and spark.network.crypto.enabled"),
        ({"spark.authenticate": "true"}, "spark.network.crypto.enabled"),
        ({"spark.network.crypto.enabled": "true"}, "spark.authenticate"),
    ],
)
@pytest.mark.parametrize("master", [MASTER, "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_that_anyone_can_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str], missing: str
) -> None:
    builder = without_spark(monkeypatch)
    builder.defaults = settings
    with pytest.raises(ClusterOpen) as refused:
        pipeline_session(master)
    assert str(refused.value) == (
        f"Spark at '{master}' runs without {missing}: anyone who can reach its ports can run code and read messages. "
        "In spark-defaults.conf on every machine, set these to true and set spark.authenticate.secret; or accept the "
        "risk with --insecure-cluster."
    )
    assert [session.is_stopped for session in builder.made] == [True]
    pipeline_session(master, insecure_cluster=True)


@pytest.mark.parametrize("encryption", ["spark.network.crypto.enabled", "spark.ssl.rpc.enabled"])
def test_a_cluster_that_authenticates_and_encrypts_is_accepted(
    monkeypatch: pytest.MonkeyPatch, encryption: str
) -> None:
    builder = without_spark(monkeypatch)
    builder.defaults = {"spark.authenticate": "true", encryption: "true"}
    pipeline_session(MASTER)
    assert not builder.made[0].is_stopped


def test_only_the_driver_that_runs_the_tasks_too_gets_a_small_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = without_spark(monkeypatch)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    pipeline_session("local[2]")
    pipeline_session(MASTER, insecure_cluster=True)
    assert [session.conf.get("spark.driver.memory") for session in builder.made] == ["512m", None]
