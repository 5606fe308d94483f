"""Runs a standalone Spark cluster on this machine: a master and two workers, each in its own process.

The processes authenticate each other and encrypt their traffic.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from oncebus.pipeline.jvm import OPTIONS, ClassArchive, default_cache

SPARK_HOME = Path(pyspark.__file__).parent
_CLASSES = "org.apache.spark.deploy"
_OPTIONS = ["--host", "127.0.0.1", "--webui-port", "0"]

# Saves 100 ms per batch. Its package has changed since Spark 4.0.
_PLACE = "streaming" if pyspark.__version__.startswith("4.0.") else "streaming.checkpointing"
FILE_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    f"org.apache.spark.sql.execution.{_PLACE}.FileSystemBasedCheckpointFileManager",
)

_CACHE = Path(os.environ["ONCEBUS_CACHE"]) if "ONCEBUS_CACHE" in os.environ else default_cache()
# A JVM that lives for seconds is faster without the optimising compiler and with archived classes.
QUICK_JVM = {"JDK_JAVA_OPTIONS": " ".join([*OPTIONS, *ClassArchive(_CACHE).options])}


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `environment` holds the variables that a driver needs so that the workers can reach it."""

    master: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(self.folder / "conf")}

    def executors(self) -> list[Path]:
        """Return the folders of the executors of the newest application."""
        applications = sorted(self.folder.glob("app-*"))
        return sorted(applications[-1].iterdir()) if applications else []

    def kill_executor(self, chance: random.Random) -> bool:
        """Kill one executor of the running application. Returns False if there is none."""
        folders = {str(path) for path in self.executors()}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(path / "cwd") in folders and b"ExecutorBackend" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        if not found:
            return False
        try:
            os.kill(chance.choice(sorted(found)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    with running_master(folder) as master:
        worker = worker_command(master, folder, cores=1)
        with daemon(folder / "one.log", *worker), daemon(folder / "two.log", *worker):
            for log in ("one.log", "two.log"):
                wait_for(folder / log, "Successfully registered with master")
            yield Cluster(master, folder)


@contextmanager
def running_master(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run the master of a cluster for the block. The settings hold for the master, its workers and all drivers."""
    (folder / "conf").mkdir(mode=0o700)
    protection = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "true",
    }
    defaults = "".join(f"{name} {value}\n" for name, value in (protection | dict(settings or {})).items())
    (folder / "conf" / "spark-defaults.conf").write_text(defaults)
    port = free_port()
    command = [f"{_CLASSES}.master.Master", *_OPTIONS, "--port", str(port)]
    with daemon(folder / "master.log", *command):
        wait_for(folder / "master.log", "I have been elected leader")
        yield f"spark://127.0.0.1:{port}"


def worker_command(master: str, folder: Path, *, cores: int) -> list[str]:
    options = [*_OPTIONS, "--cores", str(cores), "--memory", "1g", "--work-dir", str(folder)]
    return [f"{_CLASSES}.worker.Worker", *options, master]


# Below the ports that the system gives to connections. So a port is still free when the program binds it.
_ports = itertools.count(20_000 + os.getpid() * 13 % 10_000)


def free_port() -> int:
    """Return a port that nobody uses, another one each time."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def daemon(log: Path, *arguments: str, under: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Spark daemon for the block. `under` is a command that starts it."""
    environment = {
        **os.environ,
        **QUICK_JVM,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(log.parent / "conf"),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*under, str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert time.monotonic() < deadline, f"{text!r} did not appear:\n{log.read_text()[-2000:]}"
        time.sleep(0.1)
