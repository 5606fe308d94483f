"""`oncebus quarantine`: shows, releases and discards messages that could not be processed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import click

from oncebus.programs.cli.client import Client
from oncebus.programs.cli.connector import Connector, broker_options
from oncebus.programs.cli.options import json_lines_option
from oncebus.programs.cli.printing import count_text, print_line, print_table, shorten

_PAGE = 1000


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
    connector: Connector, entity: str | None, release: Sequence[int], discard: Sequence[int], as_json: bool
) -> None:
    """Show the messages that could not be processed, oldest first. Release or discard them by their numbers.

    A released message is routed by the current rules. If it fails again, it returns to quarantine under a new number.
    """
    if release or discard:
        if entity is not None:
            raise click.UsageError("--entity cannot be combined with --release or --discard. Name messages by number.")
        with connector.connect() as client:
            for method, done, numbers in (("POST", "released", release), ("DELETE", "discarded", discard)):
                if numbers:
                    _decide(client, method, done, numbers, as_json)
        return
    with connector.connect() as client:
        found = list(_fetch(client, entity))
    if as_json:
        for message in found:
            print_line(message)
    elif not found:
        click.echo("There are no messages in quarantine.")
    else:
        columns = ("number", "entity", "message id", "time", "reason", "description")
        print_table(None, columns, map(_row, found))


def _decide(client: Client, method: str, done: str, numbers: Sequence[int], as_json: bool) -> None:
    answer = client.ask_json(method, f"/$quarantine?number={','.join(map(str, numbers))}")
    if as_json:
        print_line(answer)
        return
    click.echo(f"{count_text(len(answer[done]), 'message')} {done}.")
    if answer["notFound"]:
        click.echo(f"Not in quarantine: {', '.join(map(str, answer['notFound']))}.")


def _fetch(client: Client, entity: str | None) -> Iterator[dict[str, Any]]:
    after = 0
    while True:
        query = {"limit": _PAGE, "after": after} | ({"entity": entity} if entity is not None else {})
        page = client.ask_json("GET", f"/$quarantine?{urlencode(query)}")
        yield from page["quarantined"]
        if page["next"] is None:
            return
        after = page["next"]


def _row(message: dict[str, Any]) -> list[str]:
    names = ("number", "entity", "messageId", "time", "reason", "description")
    return [shorten(str(message.get(name) if message.get(name) is not None else "")) for name in names]
