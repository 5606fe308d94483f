"""`oncebus serve`: runs the whole broker. Also holds the options for settings, which other commands share."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from oncebus.values import logs
from oncebus.values.settings import SETTINGS, Settings, flag, load, variable

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLE = "oncebus serve --data ./oncebus-data --http-port 5300"
_METAVARS = {"data": "DIR", "host": "ADDRESS", "master": "URL", "namespace": "NAME", "log_level": "LEVEL"}


def settings_options(*left_out: str) -> Callable[[F], F]:
    """Return a decorator that adds an option for each setting except those left out, and `--settings` for the file."""

    def decorate(command: F) -> F:
        for name in reversed([name for name in SETTINGS if name not in left_out]):
            text = f"{SETTINGS[name].help}."
            if isinstance(getattr(Settings, name), bool):
                command = click.option(flag(name), name, is_flag=True, default=None, help=text)(command)
            else:
                command = click.option(flag(name), name, metavar=_metavar(name), help=text)(command)
        file = click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings.")
        return file(command)

    return decorate


def _metavar(name: str) -> str:
    last = name.rpartition("_")[2]
    known = {"port": "PORT", "limit": "LIMIT", "file": "FILE", "config": "FILE", "cert": "FILE", "key": "FILE"}
    return _METAVARS.get(name) or known.get(last, "VALUE")


def settings_of(given: dict[str, Any], settings_file: str | None) -> Settings:
    """Load the settings of a command, and configure logging accordingly."""
    # An error in the settings is written in the form that the user wants, as far as it is known by then.
    wanted = given.get("log_format") or os.environ.get(variable("log_format"))
    logs.configure("json" if str(wanted).lower() == "json" else "text", "info")
    settings = load(given, os.environ, Path(settings_file) if settings_file is not None else None)
    logging.captureWarnings(True)
    logs.configure(settings.log_format, settings.log_level)
    return settings


entities_option = click.option(
    "--entities",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="JSON file with a list of queues, topics and subscriptions to create at the start if they do not exist.",
)


@click.command(short_help="Run the broker.", epilog=f"Example: {_EXAMPLE}")
@settings_options()
@entities_option
@click.option(
    "--print-connection-string",
    is_flag=True,
    help="Print the connection string, which contains a key, even if standard output is not a terminal.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="While another broker uses the data folder, wait, and take over when it ends. Never creates the folder.",
)
def serve(
    settings_file: str | None, entities: Path | None, print_connection_string: bool, standby: bool, **given: Any
) -> None:
    """Run the broker: its gateway and its Spark pipeline. Each is restarted if it dies.

    Prints a line when it accepts messages, and another when Spark is ready and messages flow. On a terminal it prints
    the connection string first; elsewhere `oncebus connection-string` does. Stop it with Ctrl-C or SIGTERM. A second
    Ctrl-C kills it at once.
    """
    settings = settings_of(given, settings_file)
    # Imported late, as in the other commands, so that `oncebus --help` does not load a server.
    from oncebus.programs.serve.service import run_service

    # A container's log and the journal of systemd keep what is printed, so the key is only for the eyes of a person.
    shows_key = print_connection_string or is_seen_by_a_person()
    service = run_service(settings, entities=entities, say=say, shows_key=shows_key, is_standby=standby)
    sys.exit(asyncio.run(service))


def is_seen_by_a_person() -> bool:
    """Return whether standard output is a terminal. Anything else may be a log that others read."""
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print lines for the user, in the form of the log."""
    for line in text.splitlines():
        click.echo(logs.announcement(line))
