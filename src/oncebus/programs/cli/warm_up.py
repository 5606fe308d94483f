"""`oncebus warm-up`: builds a cache that speeds up the start of Spark."""

from __future__ import annotations

from typing import Any

import click

from oncebus.programs.cli.serve import settings_of

_EXAMPLE = "oncebus warm-up"


@click.command("warm-up", short_help="Build the cache that speeds up Spark's start.", epilog=f"Example: {_EXAMPLE}")
@click.option("--cache", metavar="DIR", help="Folder for the archive; defaults to one in the user's cache folder.")
@click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings.")
def warm_up(settings_file: str | None, **given: Any) -> None:
    """Save the Java classes that Spark loads. Takes up to a minute, once for each version of Spark and Java.

    It runs a broker over a temporary folder to do so. If the classes are saved already, it does nothing.
    """
    settings = settings_of(given, settings_file)
    from oncebus.programs.serve.warm_up import make_archive

    make_archive(settings.cache, click.echo)
