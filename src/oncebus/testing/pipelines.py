"""The two pipelines of a broker for tests: one in the process of the tests, and the real one."""

from __future__ import annotations

import asyncio
import os
import subprocess
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from oncebus.broker.broker import Broker
from oncebus.engine.folders import Folders
from oncebus.pipeline.driver import IDLE_SECONDS, LocalDriver
from oncebus.programs.serve.checks import check_java
from oncebus.programs.serve.service import command, environment
from oncebus.testing import BrokerFailed
from oncebus.values.settings import Settings

LOOK_SECONDS = 0.5
END_SECONDS = 10.0


class Pipeline(AbstractAsyncContextManager["Pipeline"], ABC):
    """A pipeline over a data folder. It runs during the block."""

    starts_slowly: bool

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker

    async def __aenter__(self) -> Pipeline:
        return self

    @abstractmethod
    async def until_ready(self) -> None:
        """Return once the pipeline processes messages. Raises `BrokerFailed`."""

    @abstractmethod
    def check(self) -> None:
        """Raise `BrokerFailed` if it has ended."""


class InProcess(Pipeline):
    """The pipeline without Spark, as a task of the event loop."""

    starts_slowly = False

    async def __aenter__(self) -> Pipeline:
        """Start the task."""
        folders = Folders(self._settings.data)
        self._task = asyncio.create_task(self._run(LocalDriver(folders, shards=self._settings.shards)))
        return self

    async def _run(self, driver: LocalDriver) -> None:
        processed = -1
        while True:
            # Asking the broker costs less than looking into the folder, so an idle broker takes next to no time.
            newest = self._broker.pipeline.last_commit
            if newest == processed or not driver.step():
                processed = newest
                await asyncio.sleep(IDLE_SECONDS)

    async def __aexit__(self, *_: object) -> None:
        """End the task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until_ready(self) -> None:
        """See `Pipeline`. It is ready at once."""

    def check(self) -> None:
        """See `Pipeline`."""
        if self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            raise BrokerFailed(f"The pipeline of the broker for tests has failed: {error}") from error


class OnSpark(Pipeline):
    """The pipeline of `oncebus serve`: a process with Spark."""

    starts_slowly = True

    async def __aenter__(self) -> Pipeline:
        """Start the process. Raises `CannotServe` without Java."""
        check_java()
        self._log = self._settings.data.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command("pipeline"), "--parent", str(os.getpid())],
                env=environment(self._settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the process."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def until_ready(self) -> None:
        """See `Pipeline`."""
        probe = asyncio.create_task(self._broker.pipeline.probe())
        try:
            while not (await asyncio.wait([probe], timeout=LOOK_SECONDS))[0]:
                self.check()
        finally:
            probe.cancel()

    def check(self) -> None:
        """See `Pipeline`."""
        if self._process.poll() is not None:
            raise BrokerFailed(f"The pipeline of the broker for tests has ended: {_last_line(self._log)}")


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["it gave no reason"])[-1]
