from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from oncebus.spark.workers import WorkersDiffer, check_python, check_workers, in_worker

pytestmark = pytest.mark.slow

FOR_SQL = "spark.sql.execution.pyspark.python"
HINT = f"Before you start Spark, run: export PYSPARK_PYTHON='{sys.executable}'"
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def python(folder: Path, does: str) -> str:
    """Write a fake Python executable."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


def session(master: str, executable: str, **settings: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=executable), conf=settings)


def test_the_same_python_passes(tmp_path: Path) -> None:
    check_python(sys.executable)
    (tmp_path / "link").symlink_to(sys.executable)
    check_python(str(tmp_path / "link"))
    check_python(python(tmp_path, f"exec '{sys.executable}' \"$@\""))


def test_another_version_is_refused_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = python(tmp_path, "echo 3.7")
    message = f"Spark's workers run Python 3.7 ('{other}'), the driver runs {OWN}. {HINT}"
    with pytest.raises(WorkersDiffer) as raised:
        check_workers(session("local[2]", other))
    assert str(raised.value) == message
    # Without PYSPARK_PYTHON, Spark runs the first python3 on the path.
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(WorkersDiffer) as raised:
        check_workers(session("local[*]", "python3"))
    assert str(raised.value) == message


def test_a_missing_python_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "python"
    with pytest.raises(WorkersDiffer) as raised:
        check_python(str(missing))
    assert str(raised.value) == f"Spark's workers run the Python '{missing}', which does not exist. {HINT}"


@pytest.mark.parametrize("does", ["exit 1", "echo hello", "true"])
def test_a_python_without_a_version_is_left_to_spark(tmp_path: Path, does: str) -> None:
    check_python(python(tmp_path, does))


@pytest.mark.parametrize("master", ["spark://head:7077", "yarn", "local-cluster[2,1,1024]", "k8s://https://localhost"])
def test_the_python_of_a_cluster_is_not_checked(tmp_path: Path, master: str) -> None:
    check_workers(session(master, str(tmp_path / "none")))
    check_workers(session(master, python(tmp_path, "echo 3.7")))


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_the_python_of_this_machine_is_checked(tmp_path: Path, master: str) -> None:
    check_workers(session(master, sys.executable))
    with pytest.raises(WorkersDiffer):
        check_workers(session(master, str(tmp_path / "none")))


def test_the_setting_for_sql_overrides_the_context(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    check_workers(session("local[2]", missing, **{FOR_SQL: sys.executable}))
    check_workers(session("local[2]", sys.executable, **{FOR_SQL: ""}))
    with pytest.raises(WorkersDiffer, match=f"'{missing}', which does not exist"):
        check_workers(session("local[2]", sys.executable, **{FOR_SQL: missing}))


# Spark's own path is in PYTHONPATH; Oncebus is there or among the installed packages.
WITHOUT_ONCEBUS = f"""
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep spark | paste -sd: -) exec '{sys.executable}' -S "$@"
"""


def test_a_python_without_oncebus_is_refused_before_the_first_task(spark: SparkSession, tmp_path: Path) -> None:
    other = python(tmp_path, WITHOUT_ONCEBUS)
    spark.conf.set(FOR_SQL, other)
    try:
        with pytest.raises(WorkersDiffer) as raised:
            check_workers(spark)
    finally:
        spark.conf.unset(FOR_SQL)
    assert str(raised.value) == f"Spark's workers run the Python '{other}', which has no Oncebus. {HINT}"


def test_a_worker_without_oncebus_says_what_is_missing(tmp_path: Path) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_python(sys.executable)
        yield from batches

    serializer: Any = CloudPickleSerializer
    (tmp_path / "function").write_bytes(serializer().dumps(in_worker(work)))
    run = "import pickle, sys; list(pickle.load(open(sys.argv[1], 'rb'))([]))"
    shipped = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
    done = subprocess.run(
        [python(tmp_path, WITHOUT_ONCEBUS), "-c", run, str(tmp_path / "function")],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, shipped))},
        check=False,
    )
    assert done.stderr.decode().splitlines()[-1].startswith("RuntimeError: Spark's workers run the Python")
    assert "which has no module 'oncebus'. Install Oncebus there, or set PYSPARK_PYTHON" in done.stderr.decode()
