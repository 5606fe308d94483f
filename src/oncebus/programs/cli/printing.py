"""Prints results for people: tables, JSON, and texts from senders with their control characters escaped."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from oncebus.detection.gaps import Gaps
from oncebus.model.entities.timespans import NO_LIMIT_ISO

Record = dict[str, Any]
PIPE_WIDTH = 160
# JSON escapes all controls below these itself.
_NOT_ASCII = re.compile(r"[^\n -~]")


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(json_text(value, indent=2))


def print_line(value: Any) -> None:
    """Print a value as JSON on one line."""
    click.echo(json_text(value))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON in which characters that are not printable are escaped, wherever they come from."""
    return _NOT_ASCII.sub(_escape, json.dumps(value, indent=indent, ensure_ascii=False))


def visible(text: str) -> str:
    """Return the text with unprintable characters escaped, so that a sender cannot control the reader's terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def shorten(text: str, most: int = 120) -> str:
    """Return the text, cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, like `1 message` or `2 messages`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table that shows all texts literally, without markup."""
    made = Table(title=title, title_justify="left")
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*map(visible, row))
    return made


def console() -> Console:
    """Return the console for tables. It is as wide as the terminal; in a pipe it has a fixed, large width."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; see `table`."""
    console().print(table(title, columns, rows))


def print_gaps(gaps: Gaps) -> None:
    """Print how long after their originals repeats came: by share, and as a picture."""
    rows = gaps.table()
    columns = ("share of repeats", "came within", "pause before")[: 3 if gaps.pauses else 2]
    print_table(None, columns, [row[: len(columns)] for row in rows])
    print_table(None, ("after", "repeats", ""), [(name, f"{count:,}", bar) for name, count, bar in gaps.picture()])


def print_records(
    records: Iterable[Record],
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[Record], Sequence[str]],
    *,
    title: str | None = None,
    empty: str,
) -> None:
    """Print each record as a line of JSON, or all as a table with a row for each. `empty` is for no records."""
    if as_json:
        for record in records:
            print_line(record)
    elif rows := [row(record) for record in records]:
        print_table(title, columns, rows)
    else:
        click.echo(empty)


def print_resource(kind: str, resource: dict[str, Any], as_json: bool) -> None:
    """Print a resource as JSON, or as a table of its properties under its kind and name."""
    if as_json:
        print_json(resource)
        return
    rows = [(name, as_text(value)) for name, value in resource["properties"].items()]
    print_table(f"{kind} {resource['name']}", ("property", "value"), rows)


def as_text(value: Any) -> str:
    """Return a JSON value as text for a table: strings without quotes, everything else as JSON.

    The longest duration of the protocol means that the thing never happens.
    """
    if value == NO_LIMIT_ISO:
        return "never"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
