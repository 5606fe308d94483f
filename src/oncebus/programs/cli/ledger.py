"""`oncebus ledger`: works on a ledger of `detect_duplicates` or `oncebus dedup`, without Spark."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from oncebus.ledger import Ledger
from oncebus.ledger.keys import parse_key
from oncebus.programs.cli.ledger_texts import (
    day_rows,
    overview_json,
    overview_rows,
    sighting_json,
    sightings_text,
    size_text,
)
from oncebus.programs.cli.options import json_option
from oncebus.programs.cli.printing import count_text, print_line, print_table, visible


@click.group(
    short_help="Work on a ledger of remembered keys.", epilog="Example: oncebus ledger forget /data/ledger order-17"
)
def ledger() -> None:
    """Work on a ledger of detect_duplicates or of oncebus dedup. PATH is its folder, or the URI of an object store."""


@ledger.command(
    "show",
    short_help="Show what a ledger holds, or what it knows about a key.",
    epilog="Example: oncebus ledger show /data/ledger --key order-17",
)
@click.argument("path")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="Show what the ledger knows about this key instead. Repeat it for several keys.",
)
@json_option
def show(path: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Show what the ledger at PATH is, who used it last, and what it holds: in all and by day.

    With --key, show instead whether it has seen a KEY, and the time and sequence number of the original. Write a KEY as
    for `oncebus ledger forget`. Nothing is changed, so a query may be writing to the ledger.
    """
    opened = Ledger.open(path)
    if keys:
        _show_keys(opened, keys, as_json)
        return
    overview = opened.overview()
    if as_json:
        print_line({"ledger": opened.location, **overview_json(overview)})
        return
    print_table(f"Ledger '{opened.location}'", ("property", "value"), overview_rows(overview))
    if overview.days:
        print_table("By day (UTC)", ("day", "ids", "size"), day_rows(overview.days))


def _show_keys(opened: Ledger, keys: tuple[str, ...], as_json: bool) -> None:
    columns = opened.key_columns()
    parsed = [parse_key(key, columns) for key in keys]
    found = [(key, opened.find(each)) for key, each in zip(keys, parsed, strict=True)]
    if as_json:
        print_line({"ledger": opened.location, "keys": [sighting_json(key, sightings) for key, sightings in found]})
    else:
        for key, sightings in found:
            click.echo(f"{visible(key)}: {sightings_text(sightings)}")


@ledger.command(
    "check",
    short_help="Check every file of a ledger.",
    epilog="Example: oncebus ledger check /data/ledger",
)
@click.argument("path")
@json_option
def check(path: str, as_json: bool) -> None:
    """Check every file of the ledger at PATH: its checksum, its order, its filter, its name and its place.

    Prints a line for each problem, and exits with 1 if there is one. A query may be writing to the ledger. A run that
    was deleted as a whole cannot be noticed: a ledger has no list of its runs.
    """
    opened = Ledger.open(path)
    found = opened.check()
    if as_json:
        print_line({"ledger": opened.location, "is_intact": found.is_intact, **asdict(found)})
    else:
        for problem in found.problems:
            click.echo(visible(str(problem)))
        for note in found.notes:
            click.echo(f"Note: {visible(str(note))}")
        if found.leftovers:
            click.echo(f"Note: {count_text(len(found.leftovers), 'file')} left over, for the next writer to delete.")
        checked = f"{found.runs:,} runs with {found.ids:,} ids, {size_text(found.bytes)}"
        click.echo(f"Checked {checked}: {count_text(len(found.problems), 'problem')}.")
    if not found.is_intact:
        sys.exit(1)


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
        click.echo(f"{count_text(remembered, 'key')} forgotten.")
    else:
        click.echo("Nothing to forget: the ledger remembers none of these keys.")
