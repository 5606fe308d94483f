"""Tests the checks on the session that other tests share: good and bad workers, places that are not shared."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncebus import __version__
from oncebus.doctor import check
from oncebus.doctor.examination import examine
from oncebus.doctor.findings import Finding, Status
from oncebus.doctor.machine import own_versions
from oncebus.doctor.probing import Deadline, TookTooLong, in_tasks
from tests.object_stores import Server

APART = "/proc/self/cwd/apart"
"""A path that is a different folder in each process with another working directory, as if machines shared nothing."""

FOR_SQL = "spark.sql.execution.pyspark.python"
NOT_FAILED = {Status.OK, Status.WARNING}


def examined(spark: SparkSession, ledger: str | None = None) -> dict[str, Finding]:
    found = list(examine(spark, "local[2,4]", own_versions(), ledger, Deadline(120)))
    return {finding.check: finding for finding in found}


def test_a_good_session_and_place(spark: SparkSession, tmp_path: Path) -> None:
    found = examined(spark, str(tmp_path / "new" / "ledger"))
    assert {check: each.text for check, each in found.items() if each.status not in NOT_FAILED} == {}
    assert list(found) == [
        "Spark",
        "executors",
        "executors' Python",
        "executors' Oncebus",
        "executors' PySpark",
        "executors' PyArrow",
        "clocks",
        "Unix sockets",
        "protection",
        "settings",
        "ledger: writing",
        "ledger: sharing",
        "ledger: clock",
    ]
    assert found["executors' Oncebus"].found == f"{__version__} everywhere"
    # The shared session uses Spark's default.
    assert found["Unix sockets"].status is Status.WARNING
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_the_executors_do_not_see(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Path(str(in_tasks(spark, lambda _: os.getcwd(), 1, 60)[0]))
    monkeypatch.chdir(tmp_path)
    assert theirs != tmp_path
    found = examined(spark, APART)
    assert found["ledger: writing"].status is Status.OK
    assert found["ledger: sharing"].status is Status.FAILED
    assert f"does not see at '{APART}' what the driver writes there" in found["ledger: sharing"].found
    assert list(tmp_path.iterdir()) == []
    assert not (theirs / "apart").exists()


def test_a_place_that_cannot_be_used(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = examined(spark, str(tmp_path / "file"))
    assert found["ledger: writing"].status is Status.FAILED
    assert "Not a directory" in found["ledger: writing"].found
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_in_an_object_store(
    spark: SparkSession, object_servers: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(object_servers)
    server: Server = object_servers("s3")
    for name, value in (server.environment | {"ONCEBUS_LEDGER_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    found = examined(spark, server.new_location())
    assert [each.status for check, each in found.items() if check.startswith("ledger")] == [Status.OK] * 3


@pytest.fixture
def other_session(spark: SparkSession) -> SparkSession:
    """A session of the same application, whose settings do not change those of others."""
    return spark.newSession()


def python(folder: Path, does: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_without_oncebus(other_session: SparkSession, tmp_path: Path) -> None:
    """They have all packages of this environment except Oncebus."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (installed,) = [Path(each) for each in sys.path if each.endswith("site-packages")]
    for path in installed.iterdir():
        if "oncebus" not in path.name:
            (packages / path.name).symlink_to(path)
    base = os.path.realpath(sys.executable)
    runs = f'PYTHONPATH="$PYTHONPATH:{packages}" exec {base} -S "$@"'
    other_session.conf.set(FOR_SQL, python(tmp_path, runs))
    found = examined(other_session, str(tmp_path / "ledger"))
    assert found["executors' Python"].status is Status.OK
    assert found["executors' Oncebus"].status is Status.FAILED
    assert "No module named 'oncebus'" in found["executors' Oncebus"].found
    assert found["ledger"].status is Status.SKIPPED
    assert not (tmp_path / "ledger").exists()


def test_workers_with_another_python(other_session: SparkSession, tmp_path: Path) -> None:
    """They say that they are Python 3.10. Spark itself refuses them."""
    patched = "import sys, runpy, collections; fields = 'major minor micro releaselevel serial'; del sys.argv[0]; "
    patched += "sys.version_info = collections.namedtuple('version_info', fields)(3, 10, 0, 'final', 0); "
    patched += "runpy.run_module('pyspark.daemon', run_name='__main__', alter_sys=True)"
    runs = f'shift; exec {sys.executable} -c "{patched}" "$@"'
    other_session.conf.set(FOR_SQL, python(tmp_path, runs))
    found = examined(other_session)
    assert "executors' Python" in found, [each.text for each in found.values()]
    assert found["executors' Python"].status is Status.FAILED
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # The text of PySpark 4.3 does not name the host.
    assert found["executors' Python"].found.startswith("3.10")
    assert found["executors' Python"].found.endswith(f", but {own} here")
    # The checks that need no worker still run.
    assert "Unix sockets" in found


def test_workers_whose_python_does_not_exist(other_session: SparkSession, tmp_path: Path) -> None:
    other_session.conf.set(FOR_SQL, str(tmp_path / "none"))
    found = examined(other_session, str(tmp_path / "ledger"))
    assert found["executors' Python"].status is Status.FAILED
    assert f"'{tmp_path / 'none'}'" in found["executors' Python"].found
    assert found["ledger"].status is Status.SKIPPED


def test_a_worker_whose_clock_is_wrong(other_session: SparkSession, tmp_path: Path) -> None:
    """Its `time.time` is two minutes ahead."""
    patched = "import time, sys, runpy; real = time.time; time.time = lambda: real() + 120; del sys.argv[0]; "
    patched += "runpy.run_module('pyspark.daemon', run_name='__main__', alter_sys=True)"
    runs = f'shift; exec {sys.executable} -c "{patched}" "$@"'
    other_session.conf.set(FOR_SQL, python(tmp_path, runs))
    found = examined(other_session, str(tmp_path / "ledger"))
    for name in ("clocks", "ledger: clock"):
        assert found[name].status is Status.FAILED
        assert "+1" in found[name].found


def test_tasks_that_take_too_long_are_cancelled(spark: SparkSession) -> None:
    import time

    with pytest.raises(TookTooLong, match="Spark did not run a task in 1 s"):
        in_tasks(spark, lambda _: time.sleep(600), 2, 1.0)
    # The cores are free again.
    assert in_tasks(spark, lambda number: number, 2, 60) == [0, 1]


def test_from_a_notebook(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(spark, str(tmp_path / "ledger"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok      Python             3.")
    assert lines[-1].startswith("ok      ledger: clock      within ")
    (tmp_path / "file").touch()
    assert not check(spark, str(tmp_path / "file"))
    assert "\nfailed  ledger: writing    Ledger folder " in capsys.readouterr().out


def test_an_oncebus_of_another_version(spark: SparkSession) -> None:
    own = own_versions()
    other = replace(own, packages=own.packages | {"oncebus": "99.0"})
    found = {each.check: each for each in examine(spark, "local[2]", other, None, Deadline(120))}
    assert found["executors' Oncebus"].status is Status.FAILED
    assert f"{__version__} on '" in found["executors' Oncebus"].found
