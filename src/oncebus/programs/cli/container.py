"""The entry point of the container image: translates the contract of the emulator's image, then runs `oncebus`."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import click

from oncebus.protocols.emulator.container import CONFIG, BadVariable, start_of

DEFAULT_CONFIG = Path(sys.prefix) / "share" / "oncebus" / "Config.json"
"""The image has a configuration here, for users of the emulator who mount none."""


def words_of(arguments: Sequence[str], environment: MutableMapping[str, str], config: Path = CONFIG) -> list[str]:
    """Return the command line after `oncebus`. Sets variables in the environment, and prints notes for the user.

    A folder counts as a file: Docker creates one if the file to mount does not exist, and reading it then fails with
    an error that names it.
    """
    mounted = config if config.exists() else None
    start = start_of(arguments, environment, config=mounted, default_config=DEFAULT_CONFIG)
    environment.update(start.variables)
    for note in start.notes:
        click.echo(f"oncebus: {note}", err=True)
    return start.words


def run() -> None:
    """Run `oncebus` as the main process of a container."""
    try:
        words = words_of(sys.argv[1:], os.environ)
    except BadVariable as error:
        click.echo(f"oncebus: {error}", err=True)
        sys.exit(1)
    from oncebus.programs.cli import main

    main(words, prog_name="oncebus")


if __name__ == "__main__":
    run()
