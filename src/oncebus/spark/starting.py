"""Starts Spark in a program of ours: where its output goes, and why it did not start."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from oncebus.errors import OncebusError


class SparkStartError(OncebusError):
    """There is no Spark to work with."""


def quiet_py4j() -> None:
    """Keep Py4J's tracebacks off standard error.

    It logs what goes wrong under its own name and the root's; we see the same as an exception.
    """
    logging.getLogger().addHandler(logging.NullHandler())


def work_beside_pyspark() -> None:
    """Change to the folder that PySpark is installed in, so that Spark's Python workers start sooner.

    Spark puts a zip file with PySpark's sources before everything else on their path, and each worker compiles them
    anew: 0.6 s of a core. Only the current folder comes before that; there they find the compiled ones.
    """
    if path := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in path.split(os.pathsep))
    os.chdir(Path(pyspark.__file__).resolve().parent.parent)


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Let what is started in the block write to the log and not to our standard output and error.

    Spark's logging could be configured, but not what the JVM itself and its launcher print. A child keeps what it has
    inherited, so all its words go there, for as long as it lives.
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


def why_not(log: Path, error: BaseException) -> str:
    """Why Spark did not start, from what it said."""
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line.strip() for line in said if line.strip() and not line.startswith(("WARNING", "Using Spark's"))]
    return f"Spark did not start: {telling[-1] if telling else error} (Is Java 17 or later installed?)"
