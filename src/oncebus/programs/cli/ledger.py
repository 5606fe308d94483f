"""`oncebus ledger`: works on a ledger of `detect_duplicates` or `oncebus dedup`, without Spark."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from oncebus.ledger import Ledger
from oncebus.ledger.keys import parse_key
from oncebus.ledger.overview_texts import day_rows, overview_rows, size_text
from oncebus.programs.cli.ledger_texts import overview_json, sighting_json, sightings_text
from oncebus.programs.cli.options import json_option
from oncebus.programs.cli.printing import count_text, print_line, print_table, visible
from oncebus.programs.cli.signals import interrupt_on_sigterm


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


@ledger.command(
    "seed",
    short_help="Remember what a table already holds.",
    epilog="Example: oncebus ledger seed /data/ledger /data/orders --key id --time at --window '1 day'",
)
@click.argument("path")
@click.argument("tables", nargs=-1, required=True, metavar="TABLE…")
@click.option("--key", "key", multiple=True, required=True, metavar="COL", help="Key column; repeatable.")
@click.option("--time", "time", required=True, metavar="COL", help="Timestamp column.")
@click.option("--window", required=True, metavar="TEXT", help="10m, PT10M, '10 minutes', ever, or a column.")
@click.option("--sequence", metavar="COL", help="Whole-number column that breaks ties in time.")
@click.option("--lateness", metavar="TEXT", help="How much longer than the window to remember a key.")
@click.option(
    "--window-from", type=click.Choice(["first", "last"]), default="first", help="last: duplicates extend it."
)
@click.option(
    "--null-key", type=click.Choice(["new", "error"]), default="new", help="error: refuse rows without a key."
)
@click.option(
    "--format",
    "format_name",
    default="parquet",
    show_default=True,
    metavar="NAME",
    help="A format that Spark reads, such as delta; 'table' if each TABLE is a name in a catalog.",
)
@click.option("--checkpoint", metavar="DIR", help="Checkpoint of the query that the ledger belongs to: join beside it.")
@click.option("--parts", type=click.IntRange(1, 256), metavar="COUNT", help="Tasks; by default 64 or more.")
@click.option("--master", metavar="URL", help="Spark master; defaults to local[*].")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
@json_option
def seed(
    path: str,
    tables: tuple[str, ...],
    window: str,
    lateness: str | None,
    format_name: str,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Make the ledger at PATH remember the rows of each TABLE, as if all of them had been checked.

    Give the same key, time, window and lateness as for the stream that uses the ledger. All keys join at once, at the
    end. If the command is killed, run it again: with Parquet or ORC, it goes on with what is missing.
    """
    interrupt_on_sigterm()
    # Imported late, so that the other commands do not load Spark.
    from oncebus.programs.dedup.seed import run_seed

    settings = [setting.partition("=") for setting in conf]
    if bad := next((setting for setting, (_, equals, _) in zip(conf, settings, strict=True) if not equals), None):
        raise click.UsageError(f"Option --conf has value '{bad}'. Write NAME=VALUE.")
    options |= {"window": window, "lateness": lateness}
    run_seed(path, tables, format_name, master, {name: value for name, _, value in settings}, options, as_json=as_json)
