"""Helps our programs start Spark: redirects its output, speeds up its workers, and explains a failed start."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from oncebus.values.errors import OncebusError


class SparkStartError(OncebusError):
    """Spark did not start."""


def quiet_py4j() -> None:
    """Keep Py4J's tracebacks off standard error.

    Py4J logs every error and also raises it. Without a handler on the root logger, Python prints the log records.
    """
    logging.getLogger().addHandler(logging.NullHandler())


def work_beside_pyspark() -> None:
    """Change to the folder that PySpark is installed in, so that Spark's Python workers start sooner.

    Spark puts a zip file of PySpark's sources at the front of their path, and each worker compiles these again: 0.6 s
    of CPU time. Only the current folder comes earlier in the path, and there the workers find the compiled modules.
    """
    if path := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in path.split(os.pathsep))
    os.chdir(Path(pyspark.__file__).resolve().parent.parent)


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Send the output of processes that the block starts to the log, not to our standard output and error.

    Configuring Spark's logging would not catch what the JVM and its launcher print. A child process keeps the file
    descriptors that it inherits, so its output goes to the log for as long as it runs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for handle in (*kept, target):
            os.close(handle)


def start_failure(log: Path, error: BaseException) -> str:
    """Return the text for `SparkStartError`: the last useful line of Spark's log, else the error's text."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    useful = [line.strip() for line in lines if line.strip() and not line.startswith(("WARNING", "Using Spark's"))]
    return f"Spark did not start: {useful[-1] if useful else error} (Is Java 17 or later installed?)"
