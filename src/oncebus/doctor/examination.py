"""Examines a running Spark session: its executors, its settings and the place of a ledger."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oncebus.doctor import places
from oncebus.doctor.clocks import clock_finding
from oncebus.doctor.executors import (
    EXECUTORS,
    Own,
    Report,
    failure_finding,
    one_line,
    reach_finding,
    worker_findings,
)
from oncebus.doctor.findings import Finding, failure, is_passed, skip
from oncebus.doctor.places import ExecutorVisit
from oncebus.doctor.probing import Deadline, TookTooLong, in_tasks, known_executors, number_of_tasks, survey
from oncebus.doctor.spark_settings import other_findings, protection_finding, socket_finding
from oncebus.doctor.trial import (
    Sight,
    Trial,
    close_place,
    leave,
    list_place,
    look_for,
    new_name,
    open_place,
    try_place,
)
from oncebus.doctor.versions import spark_finding
from oncebus.ledger.storage import StorageError
from oncebus.spark.places import is_remote
from oncebus.spark.ports import LONGEST_FOLDER, is_local, missing_protection

_FAILURES = (PySparkException, Py4JError, TookTooLong)
_CLEANUP_SECONDS = 20.0


def examine(
    spark: SparkSession,
    url: str,
    own: Own,
    ledger: str | None,
    deadline: Deadline,
    hide: Callable[[str], str] = str,
) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known. `url` is the master or the address of Spark Connect.

    `hide` removes secrets from the texts of errors.
    """
    yield spark_finding(url, spark.version, pyspark.__version__, is_remote=is_remote(spark))
    reports: list[Report] = []
    tasks = 1
    try:
        executors = known_executors(spark, deadline)
        tasks = number_of_tasks(spark, executors, deadline)
        reports, offsets = survey(spark, executors, tasks, deadline)
    except TookTooLong as error:
        problem = str(error)
        yield failure(EXECUTORS, problem, "Free some resources of the cluster, or give a longer --timeout.")
    except _FAILURES as error:
        problem = "no executor could report"
        yield failure_finding(hide(str(error)), own)
    else:
        yield reach_finding(reports, executors)
        workers = worker_findings(reports, own)
        yield from workers
        problem = "" if is_passed(workers) else "the executors cannot run Oncebus"
        yield clock_finding("clocks", offsets, "this machine")

    def setting(name: str) -> str:
        return spark.conf.get(name, "") or ""

    yield socket_finding(setting, pyspark.__version__, reports, LONGEST_FOLDER)
    # Connect hides the master of its cluster.
    yield protection_finding(missing_protection(setting), is_local=is_local(setting("spark.master") or url))
    yield from other_findings(setting)
    if ledger is None:
        return
    if problem:
        yield skip("ledger", f"not checked, because {problem}")
        return
    try:
        yield from _examine_place(spark, ledger, tasks, deadline)
    except (*_FAILURES, StorageError) as error:
        yield failure(
            "ledger", one_line(hide(str(error))), "Run again. If it fails again, look at the executors' logs."
        )


def _examine_place(spark: SparkSession, location: str, tasks: int, deadline: Deadline) -> Iterator[Finding]:
    """Let the driver and the executors leave files for each other. All files are deleted in the end.

    With Spark Connect this process may not see the place at all, so a task plays the part of the driver.
    """
    home = "an executor" if is_remote(spark) else "the driver"

    def at_home(work: Callable[[], Any], seconds: float | None = None) -> Any:
        if not is_remote(spark):
            return work()
        return in_tasks(spark, lambda _: work(), 1, seconds or deadline.remaining)[0]

    opened = at_home(lambda: _try_to_open(location))
    if opened["problem"]:
        yield failure(places.WRITING, opened["problem"], "Give a folder that this user may write, on every machine.")
        return
    content = uuid.uuid4().hex
    marker, names = new_name(), [new_name() for _ in range(tasks)]
    is_shared = True
    try:
        trial = Trial(**at_home(lambda: asdict(try_place(location))))
        if trial.problem:
            yield places.writing_finding(location, {home: trial})
            return
        in_tasks(spark, lambda _: list_place(location), tasks, deadline.remaining)
        at_home(lambda: leave(location, marker, content.encode()))
        answers = in_tasks(
            spark, lambda number: _visit(location, marker, names[number], content), tasks, deadline.remaining
        )
        visits = [_as_visit(each) for each in answers]
        left = [name for name, visit in zip(names, visits, strict=True) if visit.trial and not visit.trial.problem]
        seen = at_home(lambda: [asdict(sight) for sight in _look_for_all(location, left, content)])
        returned = dict(zip(left, (Sight(**each) for each in seen), strict=False))
        visits = [
            ExecutorVisit(visit.host, visit.sight, visit.trial, returned.get(name))
            for name, visit in zip(names, visits, strict=True)
        ]
        is_shared = all(sight.is_seen for sight in returned.values())
        trials = {home: trial} | _trials(visits)
        yield places.writing_finding(location, trials)
        yield places.sharing_finding(location, visits, home)
        if is_remote(spark):
            yield places.client_finding(location, look_for(location, marker, content.encode(), patience=0.0))
        yield places.storage_clock_finding(trials)
    finally:
        if not is_shared:
            with suppress(*_FAILURES):
                in_tasks(spark, lambda _: close_place(location, names, []), tasks, _CLEANUP_SECONDS)
        with suppress(*_FAILURES):
            at_home(lambda: close_place(location, [marker, *names], opened["made"]), _CLEANUP_SECONDS)


def _try_to_open(location: str) -> dict[str, Any]:
    try:
        return {"made": open_place(location), "problem": ""}
    except StorageError as error:
        return {"made": [], "problem": str(error).rstrip(".")}


def _visit(location: str, marker: str, own: str, content: str) -> dict[str, Any]:
    """Look for the marker, in a task. Only if it is there, try the place and leave a file in return."""
    sight = look_for(location, marker, content.encode())
    trial = try_place(location) if sight.is_seen else None
    if trial is not None and not trial.problem:
        leave(location, own, content.encode())
    return {"host": platform.node(), "sight": asdict(sight), "trial": asdict(trial) if trial else None}


def _as_visit(answer: dict[str, Any]) -> ExecutorVisit:
    trial = Trial(**answer["trial"]) if answer["trial"] else None
    return ExecutorVisit(answer["host"], Sight(**answer["sight"]), trial)


def _look_for_all(location: str, names: list[str], content: str) -> Iterator[Sight]:
    """Yield what this machine sees of the files, up to the first that it does not see."""
    for name in names:
        sight = look_for(location, name, content.encode())
        yield sight
        if not sight.is_seen:
            return


def _trials(visits: list[ExecutorVisit]) -> dict[str, Trial]:
    """Return the trial of each host: one that failed, if there is one."""
    found: dict[str, Trial] = {}
    for visit in visits:
        host = f"'{visit.host}'"
        if visit.trial is not None and (host not in found or visit.trial.problem):
            found[host] = visit.trial
    return found
