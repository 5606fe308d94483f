"""Runs all checks in their order: this machine, the address of the cluster, a session, and what the session shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from oncebus.doctor.findings import Finding, failure, is_passed, skip
from oncebus.doctor.machine import machine_findings, own_versions
from oncebus.doctor.reaching import hide_parameters, reaching_finding, without_parameters
from oncebus.values.errors import OncebusError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    # Report the first failure of a task instead of trying three times more.
    "spark.task.maxFailures": "1",
}


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """What to check. `remote` is the address of Spark Connect, used instead of the master."""

    master: str = "local[2]"
    remote: str | None = None
    ledger: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 120.0


def run_checks(request: DoctorRequest) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known. Stops at a finding that makes all further checks impossible."""
    machine = list(machine_findings(needs_java=request.remote is None))
    yield from machine
    url, option = (request.remote, "--remote") if request.remote else (request.master, "--master")
    if not is_passed(machine):
        yield skip("Spark", "not started, because this machine is not ready")
        return
    unreachable = reaching_finding(url, option)
    if unreachable is not None:
        yield unreachable
        return
    # Imported late: without PyArrow or PySpark, the findings above say so.
    from oncebus.doctor.examination import examine
    from oncebus.doctor.probing import Deadline
    from oncebus.ledger.storage import StorageError, storage_at

    deadline = Deadline(request.seconds)
    ledger = None
    try:
        # Make the path absolute: the tasks have a different working directory.
        ledger = storage_at(request.ledger).location if request.ledger is not None else None
    except StorageError as error:
        yield failure("ledger", str(error), "")
    try:
        with _session(request) as spark:
            hide = partial(without_parameters, url=url)
            yield from examine(spark, hide_parameters(url), own_versions(), ledger, deadline, hide)
    except _NotStarted as error:
        yield failure("Spark", str(error).rstrip("."), f"Correct {option} or the settings that it names.")


def check_session(spark: SparkSession, ledger: str | None, seconds: float) -> bool:
    """Print the findings about a session that exists already. Return whether no check failed."""
    from oncebus.doctor.examination import examine
    from oncebus.doctor.probing import Deadline
    from oncebus.ledger.storage import storage_at
    from oncebus.spark.places import is_remote

    location = storage_at(ledger).location if ledger is not None else None
    url = "Spark Connect" if is_remote(spark) else str(spark.sparkContext.master)
    found = list(machine_findings(needs_java=False))
    for finding in found:
        print(finding.line())
    for finding in examine(spark, url, own_versions(), location, Deadline(seconds)):
        found.append(finding)
        print(finding.line())
    return is_passed(found)


class _NotStarted(OncebusError):
    """There is no session, or it cannot be used."""


def _session(request: DoctorRequest) -> AbstractContextManager[SparkSession]:
    return _remote_session(request) if request.remote else _local_session(request)


@contextmanager
def _local_session(request: DoctorRequest) -> Iterator[SparkSession]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from oncebus.doctor.executors import one_line
    from oncebus.spark.session import quiet_session
    from oncebus.spark.starting import SparkStartError

    session = quiet_session(request.master, "oncebus doctor", _SETTINGS | dict(request.settings))
    with ExitStack() as stack:
        try:
            spark = stack.enter_context(session)
        except SparkStartError as error:
            raise _NotStarted(str(error)) from error
        except Py4JError as error:
            raise _NotStarted(f"Spark did not start: {one_line(str(error))}") from error
        yield spark


@contextmanager
def _remote_session(request: DoctorRequest) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from oncebus.doctor.executors import one_line

    url = str(request.remote)
    try:
        builder = SparkSession.builder.remote(url)
        for name, value in request.settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    except ImportError as error:
        problem = one_line(without_parameters(str(error), url))
        raise _NotStarted(f"{problem} (pip install 'oncebus[connect]')") from None
    except Exception as error:
        # Of any type: a traceback would show the token if the error quotes the URL or the headers of a request.
        raise _NotStarted(one_line(without_parameters(str(error), url))) from None
