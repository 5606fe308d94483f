"""`oncebus quarantine`: what could not be processed, and what is to become of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import click

from oncebus.cli.client import Client
from oncebus.cli.printing import print_line, print_table, shortened
from oncebus.cli.reaching import Reach, broker_options

_PAGE = 1000


@click.command(
    short_help="Show messages that could not be processed; release or discard them.",
    epilog="Example: oncebus quarantine --entity orders --json",
)
@click.option("--entity", metavar="PATH", help="Only of this queue or topic.")
@click.option("--release", multiple=True, type=click.IntRange(1), metavar="NUMBER", help="Try it again; repeatable.")
@click.option("--discard", multiple=True, type=click.IntRange(1), metavar="NUMBER", help="Let go of it; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@broker_options
def quarantine(reach: Reach, entity: str | None, release: Sequence[int], discard: Sequence[int], as_json: bool) -> None:
    """Show what could not be processed, oldest first. With --release or --discard, decide about it by its number.

    What is released is routed by the rules of today; if it fails again, it is here again under a new number.
    """
    if release or discard:
        if entity is not None:
            raise click.UsageError("--entity is for looking; messages are released and discarded by their numbers.")
        with reach.connected() as client:
            for method, done, numbers in (("POST", "released", release), ("DELETE", "discarded", discard)):
                if numbers:
                    _decide(client, method, done, numbers, as_json)
        return
    with reach.connected() as client:
        found = list(_quarantined(client, entity))
    if as_json:
        for message in found:
            print_line(message)
    elif not found:
        click.echo("Nothing is in quarantine.")
    else:
        columns = ("number", "entity", "message id", "time", "reason", "description")
        print_table(None, columns, map(_row, found))


def _decide(client: Client, method: str, done: str, numbers: Sequence[int], as_json: bool) -> None:
    answer = client.ask_json(method, f"/$quarantine?number={','.join(map(str, numbers))}")
    if as_json:
        print_line(answer)
        return
    click.echo(f"{len(answer[done])} message{'' if len(answer[done]) == 1 else 's'} {done}.")
    if answer["notFound"]:
        click.echo(f"Not in quarantine: {', '.join(map(str, answer['notFound']))}.")


def _quarantined(client: Client, entity: str | None) -> Iterator[dict[str, Any]]:
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
    return [shortened(str(message.get(name) if message.get(name) is not None else "")) for name in names]
