"""Whether Spark's workers on this machine run the Python that the driver runs.

Spark starts them with `PYSPARK_PYTHON`, or `python3` where that is not set, and each task of another version fails with
a page of tracebacks. Whether their Python has Oncebus installed is not asked: there are too many ways to bring it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

from pyspark.sql import SparkSession

from oncebus.errors import OncebusError

_FOR_SQL = "spark.sql.execution.pyspark.python"
"""A setting of Spark's: the Python of the workers that SQL starts, whatever the context's."""
_SECONDS = 10
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class WorkersDiffer(OncebusError, RuntimeError):
    """Spark's workers would run another Python than the driver, or none."""


def check_workers(spark: SparkSession) -> None:
    """Raises `WorkersDiffer` if that can be seen from here. On a cluster it cannot."""
    context = spark.sparkContext
    master = context.master or ""
    # `local-cluster[…]`, which Spark has for tests, is a cluster.
    if master == "local" or master.startswith("local["):
        check_python(spark.conf.get(_FOR_SQL, "") or context.pythonExec)


def check_python(executable: str) -> None:
    """Raises `WorkersDiffer` if an executable is not there, or is a Python of another version than this one."""
    found = shutil.which(executable)
    if found is None:
        raise WorkersDiffer(f"Spark's workers run the Python '{executable}', which is not there. {_hint()}")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = own if os.path.realpath(found) == os.path.realpath(sys.executable) else _version_of(found)
    if version is not None and version != own:
        raise WorkersDiffer(f"Spark's workers run Python {version} ('{found}'), the driver runs {own}. {_hint()}")


@functools.cache
def _version_of(path: str) -> str | None:
    """Like 3.11; None where it does not tell, which Spark may still make something of."""
    try:
        said = subprocess.run(
            [path, "-c", _VERSION],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    version = said.stdout.strip()
    return version if version.replace(".", "", 1).isdigit() else None


def _hint() -> str:
    return f"Before Spark is started: export PYSPARK_PYTHON='{sys.executable}'"
