"""The preparations of a program before it starts Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from oncebus.spark.starting import work_beside_pyspark


def test_workers_find_the_compiled_pyspark_before_the_zip_that_spark_puts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(pyspark.__file__).resolve().parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", str(tmp_path / "other")]))
    work_beside_pyspark()
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(tmp_path / "src"), str(tmp_path / "other")])
    # Run a module of PySpark in the way that Spark runs its workers. This one imports the package and prints nothing.
    archives = [str(path) for path in (installed / "python" / "lib").glob("*.zip")]
    assert archives
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(archives))

    done = subprocess.run([sys.executable, "-v", "-m", "pyspark.version"], capture_output=True, text=True, check=True)
    assert f"{installed / '__init__.py'}" in done.stderr
    assert "pyspark.zip/pyspark/__init__" not in done.stderr
