"""`oncebus duplicates`: which messages were dropped, and in favour of which."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from oncebus.access import ROOT_RULE
from oncebus.cli.client import duplicates as asked
from oncebus.cli.reaching import trusted
from oncebus.cli.token import client_settings, signed, url_for
from oncebus.durations import MINUTE

_EXAMPLE = "oncebus duplicates orders --since 2026-01-31T08:30:00Z --json"


@click.command(short_help="Show the messages that were dropped as duplicates.", epilog=f"Example: {_EXAMPLE}")
@click.argument("entity")
@click.option("--message-id", metavar="ID", help="Only of this message id.")
@click.option("--since", metavar="TIME", help="Only from this time on, like 2026-01-31T08:30:00Z.")
@click.option("--limit", type=click.IntRange(min=1), metavar="COUNT", help="At most so many, the oldest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("--rule", default=ROOT_RULE, metavar="NAME", show_default=True, help="Rule whose key is used.")
@click.option("--url", metavar="URL", help="Address of the broker; else what the data folder says.")
@click.option("--data", metavar="DIR", help="The broker's data folder.")
@click.option("--key-file", metavar="FILE", help="Keys; else those of the data folder.")
@click.option("--settings", "settings_file", metavar="FILE", help="TOML file with settings.")
def duplicates(
    entity: str,
    message_id: str | None,
    since: str | None,
    limit: int | None,
    as_json: bool,
    rule: str,
    url: str | None,
    data: str | None,
    key_file: str | None,
    settings_file: str | None,
) -> None:
    """Show what a running broker has dropped at the queue or topic ENTITY: the most recent ones, oldest first."""
    settings = client_settings(data, key_file, settings_file)
    address = url_for(settings, url)
    token = signed(settings, address, entity, rule, 5 * MINUTE)
    certificate = trusted(settings, address)
    drops = asked(address, token, entity, message_id=message_id, since=since, certificate=certificate)
    found = itertools.islice(drops, limit)
    if as_json:
        for drop in found:
            click.echo(json.dumps(drop, ensure_ascii=False))
    else:
        _show(entity, found, message_id, since)


def _show(entity: str, found: Iterable[dict[str, Any]], message_id: str | None, since: str | None) -> None:
    table = Table(title=f"Duplicates dropped at {entity}", title_justify="left")
    for name in ("message id", "dropped at", "number", "in favour of", "accepted at"):
        table.add_column(name, overflow="fold")
    for drop in found:
        original = drop["original"] or {}
        table.add_row(
            _visible(drop["messageId"]),
            drop["time"],
            str(drop["sequenceNumber"]),
            str(original.get("sequenceNumber", "")),
            original.get("time") or "",
        )
    if not table.row_count:
        which = f"duplicate of '{_visible(message_id)}' was" if message_id else "duplicates were"
        click.echo(f"No {which} dropped at '{entity}'{f' since {since}' if since else ''}.")
        return
    # In a pipe there is no width to keep to.
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


def _visible(text: str) -> str:
    """The text of a sender, who is not to steer the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
