"""Runs a broker without Spark behind HTTP, in a thread, and commands against it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result

from oncebus.broker.broker import Broker
from oncebus.model.access import KeyFile
from oncebus.model.entities import Tier
from oncebus.programs.cli import main
from oncebus.programs.serve.addresses import write_addresses
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import listen, server
from tests.broker.in_process import running_broker
from tests.in_thread import in_thread

T = TypeVar("T")


@dataclass
class Served:
    """A running broker, and a way to run commands against it."""

    data: Path
    url: str
    broker: Broker
    loop: asyncio.AbstractEventLoop

    def run(self, *words: str | Path, stdin: bytes | str | None = None, **environment: str) -> Result:
        """Run a command over the broker's data folder."""
        cleared: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("ONCEBUS_"))
        runner = CliRunner(env=cleared | {"ONCEBUS_DATA": str(self.data)} | environment)
        return runner.invoke(main, list(map(str, words)), input=stdin)

    def ok(self, *words: str | Path, stdin: bytes | str | None = None) -> str:
        """Run a command that must succeed, and return its output."""
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str | Path) -> Any:
        """Run a command with --json, and return the parsed output."""
        return json.loads(self.ok(*words, "--json"))

    def json_lines(self, *words: str | Path) -> list[Any]:
        """Run a command with --json, and return the parsed lines of its output."""
        return [json.loads(line) for line in self.ok(*words, "--json").splitlines()]

    def refusal(self, *words: str | Path) -> str:
        """Run a command that must fail, and return the one line of its error."""
        (line,) = self.refusals(*words)
        return line

    def refusals(self, *words: str | Path) -> list[str]:
        """Run a command that must fail, and return the lines of its error."""
        result = self.run(*words)
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert all(line.startswith("oncebus: ") for line in lines), result.stderr
        return [line.removeprefix("oncebus: ") for line in lines]

    def do(self, doing: Awaitable[T]) -> T:
        """Run a coroutine on the broker's event loop, and return its result."""

        async def run() -> T:
            return await doing

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)


@contextmanager
def served_broker(data: Path, tier: Tier = Tier.STANDARD) -> Iterator[Served]:
    """Run a broker at a free port for a block."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Served]:
        loop = asyncio.get_running_loop()
        keys = KeyFile(data / "keys.json")
        keys.create()
        async with running_broker(data, tier=tier) as broker:
            app = make_app(broker, namespace_rules=keys.rules, keys=keys)
            running = server(app, listen("127.0.0.1", 0))
            await running.start()
            url = f"http://127.0.0.1:{running.port}"
            write_addresses(data, url)
            yield Served(data, url, broker, loop)
            await running.stop()

    with in_thread(run) as service:
        yield service
