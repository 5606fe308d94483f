"""Runs the program of a page with the command of that page, kills it, and starts it again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from oncebus.pipeline.jvm import OPTIONS
from tests.cluster import FILE_MANAGER
from tests.programs.serve.programs import until

from .orders import Order
from .pages import END, Page

LIMIT = 240.0

_THE_END = """\
import glob, json

query.processAllAvailable()
while not glob.glob("/data/{commits}") or {table}.count() < {rows}:
    query.awaitTermination(1)
    query.processAllAvailable()
query.stop()
with open({output!r}, "w") as output:
    rows = {table}.selectExpr("id", "unix_millis(at) AS milliseconds", "body")
    json.dump([row.asDict() for row in rows.collect()], output)
"""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Few rows: compiling code for them would take longer than everything else.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.log.level": "WARN",
    FILE_MANAGER[0]: FILE_MANAGER[1],
}
_STEPS = ("checkpoint/offsets/[0-9]*", "ledger/run-*", "checkpoint/commits/[0-9]*")
"""The files that every batch adds, beside those of the table."""


class Recipe:
    """The program of a page, over the folder `data`. `changes` replaces addresses and sizes in the program.

    `program` is another program of the page, if it is not the first one.
    """

    def __init__(self, page: Page, folder: Path, changes: Mapping[str, str], program: str | None = None) -> None:
        self.page, self.folder, self.data = page, folder, folder / "data"
        self.data.mkdir()
        self._program = program or page.program
        for old, new in changes.items():
            assert old in self._program, f"{page.name} does not have {old}"
            self._program = self._program.replace(old, new)
        assert self._program.endswith(END), page.name
        self.log = folder / "driver.log"
        self.kills = 0
        self.driver: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command of the page, with the fetched packages and with options that suit a test."""
        first, *words = map(self._moved, self.page.command)
        assert first == "spark-submit", self.page.name
        at = words.index("--packages")
        words[at : at + 2] = ["--jars", self.page.jars()]
        options = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        return [
            str(self.page.spark() / "pyspark" / "bin" / first),
            "--master",
            "local[2]",
            *options,
            *words,
        ]

    def _moved(self, text: str) -> str:
        return text.replace("/data/", f"{self.data}/")

    def start(self, end: str = END) -> None:
        """Start the program of the page, with other lines at its end if they are given."""
        command = self.command()
        (self.folder / command[-1]).write_text(self.text(end))
        self.driver = self._run(command)

    def text(self, end: str) -> str:
        """Return the program over the folder of this test, with other lines at its end."""
        return self._moved(self._program.removesuffix(END) + end)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | self._environment(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _environment(self) -> dict[str, str]:
        spark = self.page.spark()
        return {
            "JDK_JAVA_OPTIONS": " ".join(OPTIONS),
            "PYTHONPATH": str(spark),
            "SPARK_HOME": str(spark / "pyspark"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    @property
    def running(self) -> subprocess.Popen[bytes] | None:
        """Return the process that runs the program."""
        return self.driver

    def kill_soon(self, chance: random.Random) -> None:
        """Kill the running program at a random moment of one of its next batches."""
        self.wait_until_it_works(chance, self.progress())
        self.kill()
        self.kills += 1

    def wait_until_it_works(self, chance: random.Random, before: set[Path]) -> None:
        """Wait for a random step after those of `before`, and for a fraction of it. The program must still run."""
        steps = chance.randint(1, 7)
        until(lambda: len(self.progress() - before) >= steps or self.has_ended(), f"{steps} steps", limit=LIMIT)
        time.sleep(chance.random() * 0.4)
        assert not self.has_ended(), self.errors()

    def kill(self) -> None:
        """Kill the driver's Python and JVM at the same instant. Their workers may live a little longer."""
        kill(self.driver)

    def finish(self, rows: int) -> list[Order]:
        """Run the program until the table has so many rows and nothing is left to read. Return the table, sorted."""
        output = self.folder / "table.json"
        page = self.page
        self.start(_THE_END.format(table=page.table, commits=page.commits, rows=rows, output=str(output)))
        running = self.running
        assert running is not None
        assert running.wait(LIMIT) == 0, self.errors()
        return sorted(Order(**row) for row in json.loads(output.read_text()))

    def errors(self) -> str:
        """Return the end of what the program has printed, without the frames of Java."""
        lines = self.log.read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-6000:]

    def progress(self) -> set[Path]:
        """Return the files that the steps of all batches have added so far."""
        return {path for pattern in (*_STEPS, self.page.commits) for path in self.data.glob(pattern)}

    def has_ended(self) -> bool:
        """Return whether the program does not run."""
        return self.running is None or self.running.poll() is not None


def kill(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a process and its group, if it runs."""
    if process is not None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
