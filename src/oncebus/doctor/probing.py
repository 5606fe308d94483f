"""Runs small functions in tasks on all executors, within a time limit.

The function that reports about a worker must run where Oncebus is not installed. Spark pickles a function that is
defined inside another one by value, so such functions import all that they need themselves.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from oncebus.doctor.clocks import Offset
from oncebus.doctor.executors import Report
from oncebus.spark.borrowed import count_executors
from oncebus.spark.places import is_remote, parallelism
from oncebus.spark.ports import is_local
from oncebus.values.errors import OncebusError

_T = TypeVar("_T")

_SETTLED_SECONDS = 1.5
"""The executors of a cluster register one by one. When none came for this long, we expect no more."""
_POLL_SECONDS = 0.1
_ROUNDS = 3
_PAUSE_SECONDS = 1.0


class TookTooLong(OncebusError):
    """Spark did not answer within the time limit."""


class Deadline:
    """The moment at which all checks must have ended."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Return the seconds that are left; at least a few, so that something can still be cleaned up."""
        return max(self._end - time.monotonic(), 3.0)

    @property
    def is_over(self) -> bool:
        """Return whether the time is used up."""
        return time.monotonic() > self._end


def in_tasks(spark: SparkSession, work: Callable[[int], Any], tasks: int, seconds: float) -> list[Any]:
    """Call a function in each of several tasks, with the number of the task, and return the answers.

    They travel as JSON. Raises `TookTooLong`, after the tasks were cancelled.
    """

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        import json

        import pyarrow as pa

        for batch in batches:
            texts = [json.dumps(work(number)) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["answer"])

    frame = spark.range(0, tasks, 1, tasks).mapInArrow(answer, "answer string")
    rows = _within(seconds, spark, frame.collect)
    return [json.loads(row["answer"]) for row in rows]


def number_of_tasks(spark: SparkSession, executors: int | None, deadline: Deadline) -> int:
    """Return how many tasks reach all executors at once."""
    # Spark Connect has to run a job for the answer.
    return max(_within(deadline.remaining, spark, lambda: parallelism(spark)), executors or 1)


def known_executors(spark: SparkSession, deadline: Deadline) -> int | None:
    """Return how many executors Spark has, once no more arrive. None with Spark Connect, which does not tell."""
    if is_remote(spark):
        return None
    if is_local(spark.sparkContext.master or ""):
        return 1
    found, since = 0, time.monotonic()
    while not deadline.is_over:
        now = count_executors(spark)
        if now != found:
            found, since = now, time.monotonic()
        if found and time.monotonic() - since > _SETTLED_SECONDS:
            return found
        time.sleep(_POLL_SECONDS)
    raise TookTooLong("Spark got no executors: no worker has free cores and memory, or they cannot reach the driver")


def survey(
    spark: SparkSession, executors: int | None, tasks: int, deadline: Deadline
) -> tuple[list[Report], dict[str, Offset]]:
    """Return a report of each executor, and how far the clock of each host is ahead of ours.

    The first round starts the Python workers. The second is quick, so it measures the clocks well. If an executor had
    no task, a slow round keeps the others busy.
    """
    reports: dict[tuple[str, int], Report] = {}
    offsets: dict[str, Offset] = {}
    for number in range(_ROUNDS):
        is_missing = executors is not None and len(reports) < executors
        if number > 1 and not is_missing:
            break
        pause = _PAUSE_SECONDS if number > 1 else 0.0
        before = time.time()
        answers = in_tasks(spark, about_worker(pause), tasks, deadline.remaining)
        after = time.time()
        for report in (Report(**each) for each in answers):
            reports[report.executor] = report
            host, offset = f"'{report.host}'", Offset.measure(before, report.time, after)
            offsets[host] = offsets[host].and_also(offset) if host in offsets else offset
    return list(reports.values()), offsets


def about_worker(pause: float) -> Callable[[int], dict[str, Any]]:
    """Return the function that reports about the worker it runs in. Its answer has the fields of `Report`."""

    def work(_: int) -> dict[str, Any]:
        import importlib
        import os
        import platform
        import sys
        import time

        now = time.time()
        packages = {}
        for name in ("oncebus", "pyspark", "pyarrow"):
            try:
                packages[name] = str(importlib.import_module(name).__version__)
            except Exception as error:
                packages[name] = f"!{type(error).__name__}: {error}"
        folder = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_DIR")
        time.sleep(pause)
        return {
            "host": platform.node(),
            "process": os.getppid(),
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "executable": sys.executable,
            "packages": packages,
            "time": now,
            "socket_folder": os.stat(folder).st_mode if folder and os.path.isdir(folder) else None,
        }

    return work


def _within(seconds: float, spark: SparkSession, work: Callable[[], _T]) -> _T:
    """Call a function that runs jobs, and return its result. Raises `TookTooLong`, after the jobs were cancelled."""
    tag = f"oncebus-doctor-{uuid.uuid4().hex}"
    done: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _tag(spark, tag)
            done.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _cancel(spark, tag)
        raise TookTooLong(f"Spark did not run a task in {seconds:.0f} s")
    if errors:
        raise errors[0]
    return done[0]


def _tag(spark: SparkSession, tag: str) -> None:
    """Mark the jobs of the calling thread, so that `_cancel` leaves other jobs of the session alone."""
    if is_remote(spark):
        spark.addTag(tag)
    else:
        # Without the first call, Spark waits for the Python code of cancelled tasks.
        spark.sparkContext.setInterruptOnCancel(True)
        spark.sparkContext.addJobTag(tag)


def _cancel(spark: SparkSession, tag: str) -> None:
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
