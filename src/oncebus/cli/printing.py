"""What commands print for people: tables, and texts of strangers that are not to steer the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 160


def print_json(value: Any) -> None:
    """A value on lines of its own."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_line(value: Any) -> None:
    """A value on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def visible(text: str) -> str:
    """The text of a sender, who is not to steer the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def shortened(text: str, most: int = 120) -> str:
    """The beginning of a text that may be long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table; what is in it is shown as it stands."""
    made = Table(title=title, title_justify="left")
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*map(visible, row))
    return made


def console() -> Console:
    """Where tables go. In a pipe there is no width to keep to."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    console().print(table(title, columns, rows))


def print_properties(title: str, properties: dict[str, Any]) -> None:
    """Print what a resource is, a property a line."""
    print_table(title, ("property", "value"), [(name, told(value)) for name, value in properties.items()])


def told(value: Any) -> str:
    """A JSON value in a table."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
