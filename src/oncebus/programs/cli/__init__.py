"""The command line: `oncebus`."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

import click

from oncebus import __version__
from oncebus.programs.cli.errors import in_lines
from oncebus.values import logs

__all__ = ["main"]

COMMANDS = {
    "serve": "serve",
    "gateway": "gateway",
    "pipeline": "pipeline",
    "deploy": "deploy",
    "export": "deploy",
    "queue": "entities",
    "topic": "entities",
    "subscription": "entities",
    "rule": "rule",
    "authorization-rule": "authorization_rule",
    "send": "messages",
    "receive": "messages",
    "peek": "messages",
    "top": "top",
    "duplicates": "duplicates",
    "forget": "forget",
    "purge": "purge",
    "quarantine": "quarantine",
    "connection-string": "token",
    "token": "token",
    "backup": "backup",
    "repair": "repair",
    "warm-up": "warm_up",
    "dedup": "dedup",
    "ledger": "ledger",
    "doctor": "doctor",
    "completion": "completion",
}
"""The module of each command. It is imported only when the command runs, because Spark and the servers load slowly."""


class _Commands(click.Group):
    """Reports a command's error as one line on standard error, with exit code 1. Click reports usage errors itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"oncebus.programs.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # Click suggests only commands that it has loaded, so we name all of them.
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("oncebus: Interrupted. Run the same command again to continue.", err=True)
            sys.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            # Imported late, because it loads slowly.
            from oncebus.programs.cli.printing import visible

            for line in in_lines(error):
                click.echo(logs.announcement(f"oncebus: {visible(line)}", logging.ERROR), err=True)
            sys.exit(1)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="oncebus", message="%(prog)s %(version)s")
def main() -> None:
    """Exact, visible, cheap duplicate detection for messages, on Spark."""
