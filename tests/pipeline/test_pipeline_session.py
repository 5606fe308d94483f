"""Which Python the workers of the pipeline run, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oncebus.pipeline.query import pipeline_session
from oncebus.spark.workers import WorkersDiffer

from .no_spark import without_spark


def test_workers_run_the_python_of_the_pipeline_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the pipeline sets is undone.
    monkeypatch.setenv("PYSPARK_PYTHON", "x")
    monkeypatch.delenv("PYSPARK_PYTHON")
    builder = without_spark(monkeypatch)
    session = pipeline_session("local[2]")
    assert session.sparkContext.pythonExec == sys.executable
    assert not builder.made[0].is_stopped


def test_a_session_whose_workers_would_all_fail_is_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    builder = without_spark(monkeypatch)
    with pytest.raises(WorkersDiffer, match="which is not there"):
        pipeline_session("local[2]")
    assert [session.is_stopped for session in builder.made] == [True]
    pipeline_session("spark://head:7077")
