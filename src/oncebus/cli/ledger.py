"""`oncebus ledger`: works on a ledger of `detect_duplicates` or `oncebus dedup`, without Spark."""

from __future__ import annotations

import click

from oncebus.cli.options import json_option
from oncebus.cli.printing import counted, print_line
from oncebus.ledger import Ledger
from oncebus.ledger.keys import parse_key


@click.group(
    short_help="Work on a ledger of remembered keys.", epilog="Example: oncebus ledger forget /data/ledger order-17"
)
def ledger() -> None:
    """Work on a ledger of detect_duplicates or of oncebus dedup. PATH is its folder, or the URI of an object store."""


@ledger.command(
    "forget",
    short_help="Forget keys, so that rows with them are new again.",
    epilog="Example: oncebus ledger forget /data/ledger order-17 order-18",
)
@click.argument("path")
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@json_option
def forget(path: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Make the ledger at PATH forget each KEY: the next row with it is not a duplicate.

    A KEY is the value of the key column. With several key columns it is a JSON array with a value for each, in their
    order: '["order-17", 3]'. Write binary values in hexadecimal, and times like 2026-01-31T08:30:00Z.
    """
    opened = Ledger.open(path)
    columns = opened.key_columns()
    remembered = opened.forget([parse_key(key, columns) for key in keys])
    if as_json:
        print_line({"ledger": opened.location, "keys": len(keys), "remembered": remembered})
    elif remembered:
        click.echo(f"{counted(remembered, 'key')} forgotten.")
    else:
        click.echo("Nothing to forget: the ledger remembers none of these keys.")
