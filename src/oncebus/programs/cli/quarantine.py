"""`oncebus quarantine`: shows, releases and discards messages that could not be processed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from oncebus.programs.cli.client import Client
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_lines_option
from oncebus.programs.cli.printing import count_text, print_line, print_records, shorten

_COLUMNS = ("number", "entity", "message id", "time", "reason", "description")


@click.command(
    short_help="Show messages that could not be processed; release or discard them.",
    epilog="Example: oncebus quarantine --entity orders --json",
)
@click.option("--entity", metavar="PATH", help="Show only messages of this queue or topic.")
@click.option(
    "--release",
    multiple=True,
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Process the message with this number again; repeatable.",
)
@click.option(
    "--discard",
    multiple=True,
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Delete the message with this number for good; repeatable.",
)
@json_lines_option
@broker_options
def quarantine(
    broker: BrokerLocation, entity: str | None, release: Sequence[int], discard: Sequence[int], as_json: bool
) -> None:
    """Show the messages that could not be processed, oldest first. Release or discard them by their numbers.

    A released message is routed by the current rules. If it fails again, it returns to quarantine under a new number.
    """
    if release or discard:
        if entity is not None:
            raise click.UsageError("--entity cannot be combined with --release or --discard. Name messages by number.")
        with broker.connect() as client:
            for method, done, numbers in (("POST", "released", release), ("DELETE", "discarded", discard)):
                if numbers:
                    _decide(client, method, done, numbers, as_json)
        return
    with broker.connect() as client:
        found = client.pages("/$quarantine", "quarantined", entity=entity)
        print_records(found, as_json, _COLUMNS, _row, empty="There are no messages in quarantine.")


def _decide(client: Client, method: str, done: str, numbers: Sequence[int], as_json: bool) -> None:
    answer = client.ask_json(method, f"/$quarantine?number={','.join(map(str, numbers))}")
    if as_json:
        print_line(answer)
        return
    click.echo(f"{count_text(len(answer[done]), 'message')} {done}.")
    if answer["notFound"]:
        click.echo(f"Not in quarantine: {', '.join(map(str, answer['notFound']))}.")


def _row(message: dict[str, Any]) -> list[str]:
    names = ("number", "entity", "messageId", "time", "reason", "description")
    return [shorten(str(message.get(name) if message.get(name) is not None else "")) for name in names]
