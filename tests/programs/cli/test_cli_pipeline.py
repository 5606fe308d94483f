"""Tests how `oncebus pipeline` fails if Spark's workers would run another Python. Spark itself does not start."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncebus.programs.cli import main
from tests.pipeline.no_spark import without_spark

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the signal handlers, the logging and the folder, which the command changes in its process."""
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root, own = logging.getLogger(), logging.getLogger("oncebus")
    kept = root.handlers[:], own.handlers[:], own.level, own.propagate
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    root.handlers[:], own.handlers[:], own.propagate = kept[0], kept[1], kept[3]
    own.setLevel(kept[2])


@pytest.fixture
def why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make Spark's workers use Python 3.7, and return the expected error."""
    other = tmp_path / "python3.7"
    other.write_text("#!/bin/sh\necho 3.7\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    without_spark(monkeypatch)
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    hint = f"Before you start Spark, run: export PYSPARK_PYTHON='{sys.executable}'"
    return f"Spark's workers run Python 3.7 ('{other}'), the driver runs {own}. {hint}"


def run(tmp_path: Path, *words: str) -> Result:
    places = ["--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache"), "--master", "local[2]"]
    return CliRunner().invoke(main, ["pipeline", *places, *words])


def test_without_serve_it_fails_with_one_line(tmp_path: Path, why: str) -> None:
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"oncebus: {why}\n"


def test_under_serve_it_logs_the_same_line(tmp_path: Path, why: str) -> None:
    done = run(tmp_path, "--parent", str(os.getppid()))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"The pipeline failed: {why}")


def test_a_cluster_that_anyone_can_use_is_refused_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    done = run(tmp_path, "--master", "spark://head:7077")
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("oncebus: Spark at 'spark://head:7077' runs without spark.authenticate and ")
    assert line.endswith("or accept the risk with --insecure-cluster.")
