"""Checks that Spark's workers on this machine run the same Python version as the driver.

Spark starts its workers with `PYSPARK_PYTHON`, or with `python3` if that is not set. If the versions differ, each task
fails with a page of tracebacks. We do not check that the workers can import Oncebus, because Spark has too many ways to
ship a package to them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

from pyspark.sql import SparkSession

from oncebus.errors import OncebusError
from oncebus.spark.ports import is_local

_FOR_SQL = "spark.sql.execution.pyspark.python"
"""The Spark setting that overrides the Python of the context for workers that SQL starts."""
_SECONDS = 10
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class WorkersDiffer(OncebusError, RuntimeError):
    """Spark's workers would run a different Python version than the driver, or their Python does not exist."""


def check_workers(spark: SparkSession) -> None:
    """Raise `WorkersDiffer` if the workers run a different Python version.

    On a cluster we cannot tell, so we check nothing.
    """
    context = spark.sparkContext
    if is_local(context.master or ""):
        check_python(spark.conf.get(_FOR_SQL, "") or context.pythonExec)


def check_python(executable: str) -> None:
    """Raise `WorkersDiffer` if the executable does not exist or is a different Python version than this one."""
    found = shutil.which(executable)
    if found is None:
        raise WorkersDiffer(f"Spark's workers run the Python '{executable}', which does not exist. {_hint()}")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = own if os.path.realpath(found) == os.path.realpath(sys.executable) else _version_of(found)
    if version is not None and version != own:
        raise WorkersDiffer(f"Spark's workers run Python {version} ('{found}'), the driver runs {own}. {_hint()}")


@functools.cache
def _version_of(path: str) -> str | None:
    """Return a version like 3.11; None if the executable does not answer, since Spark may still be able to use it."""
    try:
        answer = subprocess.run(
            [path, "-c", _VERSION],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    version = answer.stdout.strip()
    return version if version.replace(".", "", 1).isdigit() else None


def _hint() -> str:
    return f"Before you start Spark, run: export PYSPARK_PYTHON='{sys.executable}'"
