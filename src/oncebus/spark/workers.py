"""Checks that Spark's workers on this machine run the same Python version as the driver, and find Oncebus.

Spark starts its workers with `PYSPARK_PYTHON`, or with `python3` if that is not set. If the versions differ, or that
Python has no Oncebus, each task fails with a page of tracebacks. On a cluster only a task can tell: it then says in one
line what is missing.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.spark.borrowed import pickle_function
from oncebus.spark.ports import is_local
from oncebus.values.errors import OncebusError

_FOR_SQL = "spark.sql.execution.pyspark.python"
"""The Spark setting that overrides the Python of the context for workers that SQL starts."""
_SECONDS = 10
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_IS_THERE = "import importlib.util; print(importlib.util.find_spec('oncebus') is not None)"

InWorker = Callable[[Iterator[Any]], Iterator[Any]]
"""A function for `mapInArrow`, or for an Arrow UDF that takes an iterator."""


class WorkersDiffer(OncebusError, RuntimeError):
    """Spark's workers would run a Python that does not exist, has a different version, or has no Oncebus."""


def check_workers(spark: SparkSession) -> None:
    """Raise `WorkersDiffer` if the workers run a different Python version, or one without Oncebus.

    On a cluster we cannot tell, so we check nothing.
    """
    context = spark.sparkContext
    if is_local(context.master or ""):
        found = check_python(spark.conf.get(_FOR_SQL, "") or context.pythonExec)
        is_own = os.path.abspath(found) == os.path.abspath(sys.executable)
        # Spark has many ways to ship a package to its workers, so a worker has the last word.
        if not is_own and _answer_of(found, _IS_THERE) == "False" and not _is_shipped(spark):
            raise WorkersDiffer(f"Spark's workers run the Python '{found}', which has no Oncebus. {_hint()}")


def check_python(executable: str) -> str:
    """Return the path of an executable.

    Raises `WorkersDiffer` if it does not exist or is a different Python version than this one.
    """
    found = shutil.which(executable)
    if found is None:
        raise WorkersDiffer(f"Spark's workers run the Python '{executable}', which does not exist. {_hint()}")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = own
    if os.path.realpath(found) != os.path.realpath(sys.executable):
        # One that does not answer is left to Spark, which may still be able to use it.
        answer = _answer_of(found, _VERSION)
        version = answer if answer.replace(".", "", 1).isdigit() else own
    if version != own:
        raise WorkersDiffer(f"Spark's workers run Python {version} ('{found}'), the driver runs {own}. {_hint()}")
    return found


def in_worker(work: InWorker) -> InWorker:
    """Return a function that does the same, and fails with one line in a Python that has no Oncebus.

    An error of ours reaches the driver as one line, without a traceback. Spark's workers unpickle a function before
    they call it, and would fail there.
    """
    pickled = pickle_function(work)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        # Spark pickles this function with its code, which needs no Oncebus.
        import os
        import pickle
        import sys

        try:
            work = pickle.loads(pickled)
        except ModuleNotFoundError as error:
            raise RuntimeError(
                f"Spark's workers run the Python '{sys.executable}', which has no module '{error.name}'. Install "
                "Oncebus there, or set PYSPARK_PYTHON to a Python that has it before you start Spark."
            ) from None
        from oncebus.values.errors import OncebusError

        try:
            yield from work(batches)
        except OncebusError:
            # The message says what to do, and frames of Python would only hide it. Spark reads this variable when it
            # makes a text of the error; then the worker ends.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise

    return run


def _is_shipped(spark: SparkSession) -> bool:
    """Return whether a worker finds Oncebus."""

    def find(_: int) -> bool:
        import importlib.util

        return importlib.util.find_spec("oncebus") is not None

    try:
        row = spark.range(0, 1, 1, 1).select(F.udf(find, "boolean", useArrow=False)("id")).first()
    except PySparkException:
        return False
    return bool(row and row[0])


@functools.cache
def _answer_of(path: str, question: str) -> str:
    """Return what a Python prints; nothing if it does not answer."""
    try:
        answer = subprocess.run(
            [path, "-c", question],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def _hint() -> str:
    return f"Before you start Spark, run: export PYSPARK_PYTHON='{sys.executable}'"
