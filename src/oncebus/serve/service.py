"""`oncebus serve`: gateway and pipeline as two processes that are kept running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from oncebus.access import EMULATOR_RULE, KeyFile, connection_string
from oncebus.entities import iso_timespan
from oncebus.serve.addresses import USUAL_AMQP_PORT, USUAL_AMQPS_PORT, Sockets, client_host, url_of
from oncebus.serve.certificate import with_certificate
from oncebus.serve.checks import alone, check_java, make_data_folder
from oncebus.serve.start_files import files_at_start
from oncebus.serve.supervisor import Program, Supervisor
from oncebus.settings import PREFIX, Settings, variable

_DURATIONS = ("lag_limit", "heartbeat_limit")


async def run_service(settings: Settings, *, entities: Path | None = None, say: Callable[[str], None] = print) -> int:
    """Run gateway and pipeline until asked to stop; the exit code. `say` gets the lines for the person who started it.

    The sockets are this process' own: a gateway that was killed is replaced without a connection being refused.
    """
    files_at_start(settings, entities)
    check_java()
    make_data_folder(settings.data, settings.data_access)
    with contextlib.ExitStack() as held:
        held.enter_context(alone(settings.data))
        settings = with_certificate(settings)
        bound = held.enter_context(contextlib.closing(Sockets.open(settings)))
        keys = KeyFile(settings.key_path)
        keys.create()
        url = url_of(settings, bound.http)
        say(connection_line(settings, bound.amqp_port, keys))
        told, telling = os.pipe()
        try:
            opened = asyncio.Event()
            say_open = _once(lambda: say(open_line(url)))

            def on_open() -> None:
                opened.set()
                say_open()

            _on_lines(told, {b"open": on_open, b"ready": _once(lambda: say(ready_line(url)))})
            common = environment(settings)
            me = str(os.getpid())
            gateway = [*command("gateway"), "--parent", me, "--tell-fd", str(telling)]
            gateway += ["--http-fd", str(bound.http.fileno()), "--amqp-fd", str(bound.amqp.fileno())]
            if entities is not None:
                gateway += ["--entities", str(entities)]
            supervisor = Supervisor(
                [
                    Program(
                        "gateway",
                        gateway,
                        common,
                        (bound.http.fileno(), bound.amqp.fileno(), telling),
                        # One that never was well has said why, and would say it again.
                        gives_up=lambda code: code > 0 and not opened.is_set(),
                    ),
                    Program("pipeline", [*command("pipeline"), "--parent", me], common),
                ]
            )
            return await supervisor.run()
        finally:
            asyncio.get_running_loop().remove_reader(told)
            os.close(told)
            os.close(telling)


def connection_line(settings: Settings, port: int, keys: KeyFile) -> str:
    """What a client needs. Without TLS it has to be told so, in the emulator's way.

    With TLS Python's client goes to the port 5671, whatever it is told: if it is another, something has to lead there.
    """
    rule = EMULATOR_RULE if settings.emulator else keys.rules()[0]
    is_plain = not settings.is_encrypted
    told = None if port == (USUAL_AMQP_PORT if is_plain else USUAL_AMQPS_PORT) else port
    return connection_string(client_host(settings), told, rule, emulator=is_plain)


def open_line(url: str) -> str:
    """The line that says that sends and management work, while Spark may still be starting."""
    return f"Oncebus accepts messages: {url} (deliveries begin when Spark is ready)"


def ready_line(url: str) -> str:
    """The line that says that messages flow."""
    return f"Oncebus is ready: {url}"


def environment(settings: Settings) -> dict[str, str]:
    """The environment of a process that is to have exactly these settings."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
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
    """The words that run a part of the broker as a process of its own."""
    return [sys.executable, "-m", "oncebus.cli", name]


def _on_lines(descriptor: int, reactions: dict[bytes, Callable[[], None]]) -> None:
    """Do something for each known line that is written to a pipe. Lines are shorter than a pipe's atomic write."""

    def read() -> None:
        for line in os.read(descriptor, 4096).splitlines():
            reactions.get(line, lambda: None)()

    asyncio.get_running_loop().add_reader(descriptor, read)


def _once(do: Callable[[], None]) -> Callable[[], None]:
    left = [do]
    return lambda: left.pop()() if left else None
