"""Tests the command: a run with a Spark of its own, and all failures before Spark starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebus.programs.cli import main
from tests.cluster import free_port

from .commands import doctor, not_ok


@pytest.mark.torture
def test_a_good_machine(tmp_path: Path) -> None:
    # A folder with a longer path could hold no sockets.
    with tempfile.TemporaryDirectory() as temporary:
        found = doctor(tmp_path, "--ledger", "ledger", TMPDIR=temporary)
        # Neither Spark nor the command leaves anything.
        assert os.listdir(temporary) == []
        assert list(tmp_path.iterdir()) == []
    assert not_ok(found) == {}
    assert [each["check"] for each in found["findings"]][:5] == ["Python", "Java", "PySpark", "PyArrow", "Spark"]
    assert found["findings"][-1]["check"] == "ledger: clock"


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """Restore the handler that the command changes in its process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run(*words: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(main, ["doctor", *words])
    return done.exit_code, (done.stdout + done.stderr).splitlines()


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, lines = run()
    assert code == 1
    assert lines[1] == (
        f"failed  Java               JAVA_HOME is '{tmp_path}', which has no bin/java. Install Java 17 or later, or "
        "set JAVA_HOME to it."
    )
    assert lines[-2] == "skipped Spark              not started, because this machine is not ready"
    assert lines[-1].startswith("5 checks in ")
    assert lines[-1].endswith(": 3 ok, 1 failed, 1 skipped")


def test_a_master_that_does_not_answer() -> None:
    port = free_port()
    code, lines = run("--master", f"spark://127.0.0.1:{port}")
    assert code == 1
    assert lines[-2] == (
        f"failed  Spark              'spark://127.0.0.1:{port}' cannot be reached (127.0.0.1:{port}: Connection "
        "refused). Start it, or correct --master."
    )
    code, lines = run("--remote", f"sc://127.0.0.1:{port}/;token=secret")
    assert code == 1
    assert f"'sc://127.0.0.1:{port}' cannot be reached" in lines[-2]
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (";token=Secret", "Port could not be cast to integer value as '{port};…'"),
        ("/;token=Secret==", "Parameter '…' should be provided as a key-value pair"),
        ("/;token=a/Secret", "The path component '/;…' must be empty"),
    ],
)
def test_a_remote_url_that_spark_refuses_shows_no_token(parameters: str, problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # In a process of its own: Spark refuses a remote session beside the one of other tests.
        command = [
            sys.executable,
            "-m",
            "oncebus.programs.cli",
            "doctor",
            "--remote",
            f"sc://127.0.0.1:{port}{parameters}",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 1
    assert problem.format(port=port) in done.stdout.splitlines()[-2]
    assert "secret" not in done.stdout.lower()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--master", "local[2]", "--remote", "sc://head"), "Error: Give either --master or --remote."),
        (("--conf", "spark.x"), "Error: --conf 'spark.x' is not a setting. Write NAME=VALUE."),
        (("--timeout", "1"), "Error: Invalid value for '--timeout': 1.0 is not in the range 10<=x<=86400."),
    ],
)
def test_wrong_command_lines(words: tuple[str, ...], error: str) -> None:
    code, lines = run(*words)
    assert (code, lines[-1]) == (2, error)


def test_a_check_that_hangs_ends_the_process(tmp_path: Path) -> None:
    script = """
import sys, threading
from oncebus.doctor import watchdog
watchdog.GRACE_SECONDS = 0.2
with watchdog.watch(0.1, lambda: print("late", flush=True)):
    threading.Event().wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "late\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_help_says_when_files_stay() -> None:
    # The process above ends without a chance to delete its files at the ledger's place.
    assert "It leaves no files, unless a check hangs beyond the time limit." in " ".join(
        " ".join(run("--help")[1]).split()
    )
