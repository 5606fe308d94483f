"""`oncebus duplicates`: shows the dropped messages, each with its original."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import click

from oncebus.cli.client import Client
from oncebus.cli.connector import Connector, broker_options
from oncebus.cli.options import json_lines_option
from oncebus.cli.printing import print_line, print_table, visible

_EXAMPLE = "oncebus duplicates orders --since 2026-01-31T08:30:00Z --json"
_PAGE = 1000
_COLUMNS = ("message id", "sequence number", "dropped", "original's sequence number", "original sent")


@click.command(short_help="Show the messages that were dropped as duplicates.", epilog=f"Example: {_EXAMPLE}")
@click.argument("entity")
@click.option("--message-id", metavar="ID", help="Show only duplicates with this message id.")
@click.option("--since", metavar="TIME", help="Show only duplicates from this time on, like 2026-01-31T08:30:00Z.")
@click.option("--limit", type=click.IntRange(min=1), metavar="COUNT", help="Show at most this many, the oldest first.")
@json_lines_option
@broker_options
def duplicates(
    connector: Connector, entity: str, message_id: str | None, since: str | None, limit: int | None, as_json: bool
) -> None:
    """Show the most recent duplicates that a running broker has dropped at the queue or topic ENTITY, oldest first."""
    with connector.connect(entity=entity) as client:
        found = itertools.islice(_drops(client, entity, message_id, since), limit)
        if as_json:
            for drop in found:
                print_line(drop)
        elif drops := list(found):
            columns, rows = list(_COLUMNS), [_row(drop) for drop in drops]
            if any("counted" in drop for drop in drops):
                # The entity has a detection key of its own.
                columns.append("counted")
                rows = [[*row, _counted(drop)] for row, drop in zip(rows, drops, strict=True)]
            print_table(f"Duplicates dropped at {entity}", columns, rows)
        else:
            which = f"duplicate of '{visible(message_id)}' was" if message_id else "duplicates were"
            since_when = f" since {since}" if since else ""
            click.echo(f"No {which} dropped at '{entity}'{since_when}.{client.readiness_note()}")


def _drops(client: Client, entity: str, message_id: str | None, since: str | None) -> Iterator[dict[str, Any]]:
    """Yield the duplicates that the entity dropped, oldest first. Fetches them page by page."""
    query = {"message-id": message_id, "since": since, "limit": str(_PAGE)}
    given = {name: value for name, value in query.items() if value is not None}
    after = 0
    while True:
        path = f"/{quote(entity, safe='/')}/$duplicates?{urlencode(given | {'after': str(after)})}"
        answer = client.ask_json("GET", path)
        if not {"duplicates", "next"} <= answer.keys():
            raise client.not_a_broker()
        yield from answer["duplicates"]
        if answer["next"] is None:
            return
        after = answer["next"]


def _counted(drop: dict[str, Any]) -> str:
    counted = drop.get("counted")
    return "messageId" if counted is None else f"{counted['by']} {counted['id'] or ''}".rstrip()


def _row(drop: dict[str, Any]) -> list[str]:
    original = drop["original"] or {}
    return [
        drop["messageId"],
        str(drop["sequenceNumber"]),
        drop["time"],
        str(original.get("sequenceNumber", "")),
        original.get("time") or "",
    ]
