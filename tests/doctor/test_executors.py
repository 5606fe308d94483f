from __future__ import annotations

import stat
from dataclasses import replace
from typing import Any

import pytest

from oncebus.doctor.executors import Own, Report, failure_finding, one_line, reach_finding, worker_findings
from oncebus.doctor.findings import Finding, Status, ok
from oncebus.doctor.spark_settings import other_findings, protection_finding, socket_finding

PACKAGES = {"oncebus": "1.2.0", "pyspark": "4.3.0", "pyarrow": "26.0.0"}
OWN = Own("3.11.2", "/env/bin/python", PACKAGES)
GOOD = Report("one", 7, "3.11.9", "/env/bin/python", PACKAGES, 0.0)


def other(**changes: Any) -> Report:
    return replace(GOOD, host="two", **changes)


def judged(check: str, report: Report) -> Finding:
    (found,) = [each for each in worker_findings([GOOD, report], OWN) if each.check == check]
    return found


def test_workers_that_fit() -> None:
    # Another patch level of Python is fine.
    assert [each.status for each in worker_findings([GOOD, other(python="3.11.0")], OWN)] == [Status.OK] * 4


def test_another_python() -> None:
    found = judged("executors' Python", other(python="3.12.1", executable="/usr/bin/python3"))
    assert found.status is Status.FAILED
    assert found.text.startswith("3.12 on 'two' ('/usr/bin/python3'), but 3.11 here. ")


def test_no_oncebus() -> None:
    packages = PACKAGES | {"oncebus": "!ModuleNotFoundError: No module named 'oncebus'"}
    found = judged("executors' Oncebus", other(packages=packages, executable="/usr/bin/python3"))
    assert found.status is Status.FAILED
    assert found.text.startswith(
        "'/usr/bin/python3' on 'two': ModuleNotFoundError: No module named 'oncebus'. Install it there, or run: export "
        "PYSPARK_PYTHON='/env/bin/python'"
    )


def test_another_oncebus() -> None:
    found = judged("executors' Oncebus", other(packages=PACKAGES | {"oncebus": "1.1.0"}))
    assert (found.status, found.found) == (Status.FAILED, "1.1.0 on 'two' ('/env/bin/python'), but 1.2.0 here")


def test_another_pyspark() -> None:
    found = judged("executors' PySpark", other(packages=PACKAGES | {"pyspark": "4.2.0"}))
    assert (found.status, found.found) == (Status.FAILED, "4.2.0 on 'two' ('/env/bin/python'), but 4.3.0 here")


def test_pyarrow_of_workers() -> None:
    found = judged("executors' PyArrow", other(packages=PACKAGES | {"pyarrow": "18.0.0"}))
    assert found == ok("executors' PyArrow", "18.0.0, 26.0.0")
    broken = judged("executors' PyArrow", other(packages=PACKAGES | {"pyarrow": "!ImportError: libz.so.1"}))
    assert (broken.status, broken.found) == (Status.FAILED, "'/env/bin/python' on 'two': ImportError: libz.so.1")


def test_executors_that_ran_no_task() -> None:
    two = [GOOD, replace(GOOD, process=8)]
    assert reach_finding(two, 2) == ok("executors", "tasks ran on 2, on one")
    assert reach_finding(two, None).status is Status.OK
    found = reach_finding([GOOD, GOOD], 2)
    assert (found.status, found.found) == (Status.WARNING, "tasks ran on 1, on one; Spark has 2")
    many = [replace(GOOD, host=f"h{number}") for number in range(7)]
    assert reach_finding(many, 7).found == "tasks ran on 7, on h0, h1, h2, h3, h4 and 2 more"


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
)
LOST += "0.0 (TID 0) (10.0.0.7 executor 3): "


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "3.12 on '10.0.0.7', but 3.11 here. Let Spark's workers run the Python of the driver: export "
            "PYSPARK_PYTHON='/env/bin/python' on all machines.",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            "'/opt/python' on '10.0.0.7' cannot be started. Let Spark's workers run the Python of the driver: export "
            "PYSPARK_PYTHON='/env/bin/python', which must exist there.",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            "the workers' Python on '10.0.0.7': No module named 'pyarrow'. Install it there. Let Spark's workers run "
            "the Python of the driver: export PYSPARK_PYTHON='/env/bin/python'.",
        ),
        (
            "java.lang.OutOfMemoryError: Java heap space\n\tat java.base/x",
            "the first task failed on '10.0.0.7': Java heap space. Look at the executors' logs.",
        ),
    ],
)
def test_a_failure_of_all_workers_is_one_line(error: str, text: str) -> None:
    found = failure_finding(LOST + error, OWN)
    assert (found.status, found.text) == (Status.FAILED, text)


def test_one_line_of_an_error() -> None:
    chain = "org.x.SparkException: outer\n\tat a.b\nCaused by: java.net.UnknownHostException: inner\n\tat c"
    assert one_line(chain) == "inner"
    assert one_line("\n plain text.\nmore") == "plain text"
    assert one_line("") == "no reason given"


PRIVATE, OPEN = stat.S_IFDIR | 0o700, stat.S_IFDIR | 0o1777
SOCKETS = {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": "/tmp/x"}


def sockets(settings: dict[str, str], *, version: str = "4.3.0", mode: int | None = PRIVATE) -> Finding:
    return socket_finding(lambda name: settings.get(name, ""), version, [replace(GOOD, socket_folder=mode)], 64)


def test_unix_sockets() -> None:
    assert sockets(SOCKETS) == ok("Unix sockets", "on, in '/tmp/x'")
    assert sockets({}).status is Status.WARNING
    assert sockets({}, version="4.0.2").status is Status.OK
    long = sockets(SOCKETS | {"spark.python.unix.domain.socket.dir": "/tmp/" + "x" * 60})
    assert (long.status, long.advice[:34]) == (Status.FAILED, "Use a path of at most 64 bytes: Li")
    public = sockets(SOCKETS, mode=OPEN)
    assert (public.status, public.found) == (Status.WARNING, "on, in a folder with mode 1777 on 'one'")


def test_protection() -> None:
    assert protection_finding(["spark.authenticate"], is_local=True).status is Status.OK
    assert protection_finding([], is_local=False).status is Status.OK
    found = protection_finding(["spark.authenticate", "spark.network.crypto.enabled"], is_local=False)
    assert found.status is Status.WARNING
    assert found.found.startswith("spark.authenticate and spark.network.crypto.enabled off: anyone ")


def test_other_settings() -> None:
    assert [each.status for each in other_findings(lambda name: "")] == [Status.OK]
    settings = {
        "spark.python.worker.reuse": "false",
        "spark.dynamicAllocation.enabled": "TRUE",
        "spark.executor.pyspark.memory": "2g",
    }
    found = other_findings(lambda name: settings.get(name, ""))
    assert [each.status for each in found] == [Status.WARNING] * 3
    assert [each.found.partition(":")[0] for each in found] == [
        "spark.python.worker.reuse=false",
        "spark.dynamicAllocation.enabled=true",
        "spark.executor.pyspark.memory=2g",
    ]
