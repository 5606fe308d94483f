"""The command line: `oncebus`."""

from __future__ import annotations

import sys
from typing import Any

import click

from oncebus import __version__
from oncebus.cli.dedup import dedup as dedup_command
from oncebus.cli.errors import in_one_line

__all__ = ["main"]


class _OneLineErrors(click.Group):
    """A group whose commands fail with one line on standard error and exit code 1. Usage errors stay click's."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("oncebus: Interrupted. Run the same command again to go on.", err=True)
            sys.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            click.echo(f"oncebus: {in_one_line(error)}", err=True)
            sys.exit(1)


@click.group(cls=_OneLineErrors)
@click.version_option(__version__, prog_name="oncebus", message="%(prog)s %(version)s")
def main() -> None:
    """Exact, visible, cheap duplicate detection for messages, on Spark."""


main.add_command(dedup_command)
