"""The service of `oncebus serve`: keeps a gateway process and a pipeline process running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from oncebus.model.access import EMULATOR_RULE, KeyFile
from oncebus.model.entities import iso_timespan
from oncebus.programs.serve.addresses import ClientAddress, Sockets
from oncebus.programs.serve.certificate import with_certificate
from oncebus.programs.serve.checks import alone, check_java, make_data_folder, wait_as_standby
from oncebus.programs.serve.identity import claim_rules
from oncebus.programs.serve.start_files import files_at_start
from oncebus.programs.serve.supervisor import Program, Supervisor
from oncebus.protocols.monitoring import tracing
from oncebus.values.settings import PREFIX, Settings, variable

EMULATOR_READY = "Emulator Service is Successfully Up!"
"""The line of the official emulator's log for which Testcontainers waits."""
_DURATIONS = ("lag_limit", "heartbeat_limit", "longest_window")


async def run_service(
    settings: Settings,
    *,
    entities: Path | None = None,
    say: Callable[[str], None] = print,
    shows_key: bool = False,
    is_standby: bool = False,
) -> int:
    """Run gateway and pipeline until asked to stop, and return the exit code.

    A standby first waits until no other broker uses the data folder.

    `say` prints a line for the user. The first one is the connection string with `shows_key`, and with the emulator's
    key, which everybody knows.

    This process owns the sockets, so clients can connect even while a killed gateway is being replaced.
    """
    files_at_start(settings, entities)
    claim_rules(settings)
    tracing.is_configured(os.environ)
    check_java()
    async with contextlib.AsyncExitStack() as held:
        if settings.ephemeral:
            folder = tempfile.TemporaryDirectory(prefix="oncebus-", ignore_cleanup_errors=True)
            settings = replace(settings, data=Path(held.enter_context(folder)) / "data")
        if is_standby:
            await wait_as_standby(settings.data, lambda why: say(f"Oncebus is a standby: {why}"))
        make_data_folder(settings.data, settings.data_access)
        await held.enter_async_context(alone(settings.data))
        settings = with_certificate(settings)
        bound = held.enter_context(contextlib.closing(Sockets.open(settings)))
        keys = KeyFile(settings.key_path)
        keys.create()
        url = bound.url(settings)
        address = ClientAddress.of(settings, bound.client_port)
        if settings.emulator or shows_key:
            say(address.connection_string(EMULATOR_RULE if settings.emulator else keys.rules()[0]))
        else:
            say(f"The connection string: oncebus connection-string --data {shlex.quote(str(settings.data.absolute()))}")
        reading, writing = os.pipe()
        try:
            opened = asyncio.Event()
            say_open = _once(lambda: say(open_line(url)))

            def on_open() -> None:
                opened.set()
                say_open()

            _on_lines(reading, {b"open": on_open, b"ready": _once(lambda: say(ready_lines(url, settings)))})
            common = environment(settings)
            me = str(os.getpid())
            gateway = [*command("gateway"), "--parent", me, "--tell-fd", str(writing)]
            descriptors = bound.descriptors
            for name, number in descriptors.items():
                gateway += [f"--{name}-fd", str(number)]
            if entities is not None:
                gateway += ["--entities", str(entities)]
            supervisor = Supervisor(
                [
                    Program(
                        "gateway",
                        gateway,
                        common,
                        (*set(descriptors.values()), writing),
                        # A gateway that fails before it opens has logged why, and would fail again.
                        gives_up=lambda code: code > 0 and not opened.is_set(),
                    ),
                    Program("pipeline", [*command("pipeline"), "--parent", me], common),
                ]
            )
            return await supervisor.run()
        finally:
            asyncio.get_running_loop().remove_reader(reading)
            os.close(reading)
            os.close(writing)


def open_line(url: str) -> str:
    """Return the line to print when sends and management work, while Spark may still be starting."""
    return f"Oncebus accepts messages: {url} (Spark is starting; deliveries begin after that)"


def ready_lines(url: str, settings: Settings) -> str:
    """Return the lines to print when messages flow. With `emulator`, tools wait for the official emulator's line."""
    ready = f"Oncebus is ready: {url}"
    return f"{ready}\n{EMULATOR_READY}" if settings.emulator else ready


_MEMORY = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Many threads that allocate little would each keep an arena of their own, and Arrow a pool beside these."""


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables that give a new process exactly these settings, and a small memory."""
    given = {**_MEMORY, **{name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}}
    for each in fields(Settings):
        value = getattr(settings, each.name)
        if each.name in _DURATIONS:
            value = iso_timespan(value)
        elif isinstance(value, Path):
            value = value.absolute()
        if value is not None:
            given[variable(each.name)] = str(value)
    return given


def command(name: str) -> list[str]:
    """Return the command line that runs `oncebus NAME` as a process."""
    return [sys.executable, "-m", "oncebus.programs.cli", name]


def _on_lines(descriptor: int, reactions: dict[bytes, Callable[[], None]]) -> None:
    """Call the reaction for each known line that arrives in a pipe. Lines are short enough to arrive as a whole."""

    def read() -> None:
        for line in os.read(descriptor, 4096).splitlines():
            reactions.get(line, lambda: None)()

    asyncio.get_running_loop().add_reader(descriptor, read)


def _once(do: Callable[[], None]) -> Callable[[], None]:
    left = [do]
    return lambda: left.pop()() if left else None
