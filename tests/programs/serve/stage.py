"""A broker with its gateway in the test's process and `oncebus pipeline` as a separate process.

A test can use HTTP, and call the broker object for everything that HTTP lacks, such as sessions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from oncebus.broker.addresses import Address
from oncebus.broker.broker import DEFAULT_PIPELINE_BYTES, Broker
from oncebus.broker.core import Core
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.store import Mode
from oncebus.model.access import KeyFile
from oncebus.model.entities import Catalogue, Queue, Rule, Subscription, Topic
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import HttpServer, listen, server

from .clients import Client, Running, all_end, everything_below

T = TypeVar("T")
SHARDS = 2
# Starts the command in its arguments and stays as its parent until the command or the test ends.
_STARTER = """
import os, subprocess, sys, time
test = os.getppid()
started = subprocess.Popen([*sys.argv[1:], "--parent", str(os.getpid())])
while started.poll() is None and os.getppid() == test:
    time.sleep(0.1)
"""
PATIENCE = 120.0
"""How long a step may take that waits for Spark to start on a busy machine."""


class Stage:
    """A gateway that a test can close and reopen, and a pipeline that it can pause, kill and restart."""

    broker: Broker
    core: Core
    client: Client

    def __init__(self, folder: Path, master: str = "local[1]", **environment: str) -> None:
        self.data = folder / "data"
        self.folders = Folders(self.data)
        self._folder, self._master, self._environment = folder, master, environment
        self._keys = KeyFile(self.data / "keys.json")
        self._keys.create()
        self._http: HttpServer | None = None
        self._pipelines: list[Running] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway")
        self._thread.start()

    # The gateway

    def run(self, doing: Coroutine[Any, Any, T], seconds: float = PATIENCE) -> T:
        """Run a coroutine on the gateway's event loop, and return its result."""
        return self.start(doing).result(seconds)

    def start(self, doing: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the gateway's event loop."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop)

    def call(self, do: Callable[[], object]) -> None:
        """Call a function on the gateway's event loop, without waiting for it."""
        self._loop.call_soon_threadsafe(do)

    def open_gateway(self, most_bytes: int = DEFAULT_PIPELINE_BYTES) -> None:
        async def opened() -> HttpServer:
            # A read waits for Spark, however slow the machine is.
            self.broker = await Broker.open(
                Engine.files(self.folders, SHARDS), most_bytes=most_bytes, read_your_sends=PATIENCE
            )
            self.broker.start()
            self.core = self.broker._core
            app = make_app(self.broker, namespace_rules=self._keys.rules)
            http = server(app, listen("127.0.0.1", 0))
            await http.start()
            return http

        self._http = self.run(opened())
        self.client = Client(f"http://127.0.0.1:{self._http.port}", self.data)

    def close_gateway(self) -> None:
        if self._http is not None:
            self.run(self._http.stop())
            self.run(self.broker.close())
            self._http = None

    # The pipeline

    def start_pipeline(self) -> None:
        words: list[str | Path] = ["pipeline", "--data", self.data, "--master", self._master]
        words += ["--shards", str(SHARDS)]
        name, within = f"pipeline-{len(self._pipelines)}", [sys.executable, "-c", _STARTER]
        self._pipelines.append(Running(self._folder, name, words, within=within, **self._environment))

    def signal_pipeline(self, number: signal.Signals) -> None:
        """Send a signal to Spark and to the process that started it, at the same instant."""
        process = self._pipelines[-1].process
        assert process.poll() is None, self._pipelines[-1].err.read_text()
        if number in (signal.SIGSTOP, signal.SIGCONT):
            # The Python workers are in groups of their own, and a task goes on without Java for a while.
            for pid in self.pipeline_processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        os.killpg(process.pid, number)
        if number is signal.SIGKILL:
            process.wait()

    def pipeline_processes(self) -> list[int]:
        """Return the processes of the running pipeline: its own, Java, and the Python workers."""
        return everything_below(self._pipelines[-1].process.pid)

    def orphan_pipeline(self) -> None:
        """Kill the process that started the pipeline. The pipeline notices and ends by itself."""
        process = self._pipelines[-1].process
        below = self.pipeline_processes()
        process.kill()
        process.wait()
        all_end(below, "the pipeline ends when the process that started it has ended")

    @contextmanager
    def pipeline_held_up(self) -> Iterator[None]:
        """Pause the pipeline for a block."""
        self.signal_pipeline(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal_pipeline(signal.SIGCONT)

    def flow(self) -> None:
        """Wait until every durable message has come out of the pipeline."""
        come = self.run(self.broker.pipeline.wait_for(self.broker.pipeline.last_commit, PATIENCE - 1))
        assert come, f"{self.broker.pipeline.trouble}, {self._pipelines[-1].err.read_text()}"

    def restore(self) -> None:
        """Open the gateway and start the pipeline, if they do not run."""
        if self._http is None:
            self.open_gateway()
        if self._pipelines[-1].process.poll() is not None:
            self.start_pipeline()

    def taken(self, path: str) -> list[str]:
        """Wait for the pipeline, receive and delete all messages, and return their ids."""

        async def take() -> list[str]:
            found: list[str] = []
            while batch := await self.broker.receive(Address(path), 1000, mode=Mode.RECEIVE_AND_DELETE):
                found += [each.message.message_id for each in batch]
            return found

        self.flow()
        return self.run(take())

    # Entities

    def change(self, how: Callable[[Catalogue, int], Catalogue]) -> None:
        self.run(self.broker.change(how))

    def queue(self, name: str, **properties: Any) -> Queue:
        self.change(lambda catalogue, now: catalogue.create(Queue(name=name, **properties), now))
        return self.broker.catalogue.queue(name)

    def topic(self, name: str, **properties: Any) -> None:
        self.change(lambda catalogue, now: catalogue.create(Topic(name=name, **properties), now))

    def subscription(self, topic: str, name: str, *rules: Rule, **properties: Any) -> str:
        made = Subscription(topic=topic, name=name, **properties)
        self.change(lambda catalogue, now: catalogue.create(made, now, list(rules) or None))
        return f"{topic}/subscriptions/{name}"

    def clear(self) -> None:
        """Delete all entities."""

        def without_any(catalogue: Catalogue, now: int) -> Catalogue:
            for queue in catalogue.queues:
                catalogue = catalogue.delete(Queue(name=queue.name))
            for topic in catalogue.topics:
                catalogue = catalogue.delete(Topic(name=topic.name))
            return catalogue

        self.change(without_any)

    def close(self) -> None:
        """End the gateway and the pipeline, whatever state they are in."""
        try:
            for running in self._pipelines:
                if running.process.poll() is None:
                    os.killpg(running.process.pid, signal.SIGKILL)
                    running.process.wait()
            self.close_gateway()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
