"""`oncebus gateway`: runs the gateway alone, without the pipeline."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from oncebus.programs.cli.serve import entities_option, say, settings_of, settings_options
from oncebus.values.settings import Settings

_EXAMPLE = "oncebus gateway --data /shared/oncebus --host 0.0.0.0"


@click.command(short_help="Run the gateway alone, for a cluster.", epilog=f"Example: {_EXAMPLE}")
@settings_options("master", "insecure_cluster", "cache", "ephemeral")
@entities_option
@click.option("--parent", type=int, hidden=True)
@click.option("--http-fd", type=int, hidden=True)
@click.option("--amqp-fd", type=int, hidden=True)
@click.option("--both-fd", type=int, hidden=True)
@click.option("--tell-fd", type=int, hidden=True)
def gateway(
    settings_file: str | None,
    entities: Path | None,
    parent: int | None,
    http_fd: int | None,
    amqp_fd: int | None,
    both_fd: int | None,
    tell_fd: int | None,
    **given: Any,
) -> None:
    """Run the gateway over a data folder that it shares with `oncebus pipeline`.

    It accepts messages even while the pipeline is down. They are delivered once the pipeline runs.
    """
    settings = settings_of(given, settings_file)
    from oncebus.programs.serve.addresses import Sockets
    from oncebus.programs.serve.checks import make_data_folder
    from oncebus.programs.serve.gateway import run_gateway

    make_data_folder(settings.data, settings.data_access)
    sockets = None
    if http_fd is not None and amqp_fd is not None:
        sockets = Sockets.of_descriptors(http_fd, amqp_fd, both_fd)
    announce = _announcer(tell_fd, settings)
    asyncio.run(run_gateway(settings, entities=entities, sockets=sockets, parent=parent, announce=announce))


def _announcer(descriptor: int | None, settings: Settings) -> Callable[[str, str], None]:
    """Return a function that reports the events "open" and "ready": to `serve` over a pipe, or to the terminal."""
    if descriptor is not None:
        return lambda event, _: _write(descriptor, event)
    from oncebus.programs.serve.service import open_line, ready_lines

    return lambda event, url: say(open_line(url) if event == "open" else ready_lines(url, settings))


def _write(descriptor: int, event: str) -> None:
    os.write(descriptor, f"{event}\n".encode())
