"""Generates the reference of all commands in `docs/reference/cli.md` from the commands. A test compares the two.

Run `python tools/cli_reference.py docs/reference/cli.md` to bring the file up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from oncebus.programs.cli import main
from oncebus.programs.cli.location import broker_options
from oncebus.programs.cli.options import azure_options

BEGIN, END = "<!-- commands -->", "<!-- /commands -->"

Record = tuple[str, str]
"""An option in the help: its names and its text."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A group of options that many commands take. The reference lists them once, under their own heading."""

    heading: str
    purpose: str
    decorator: Callable[[Callable[..., None]], Callable[..., None]]

    @property
    def link(self) -> str:
        """Return a Markdown link to the heading."""
        return f"[{self.heading}](#{self.heading.lower().replace(' ', '-')})"

    def records(self) -> list[Record]:
        """Return the options in the reference's format."""
        return _records(click.command(self.decorator(_nothing)))


def _nothing(**_: Any) -> None:
    """Do nothing. Click collects the shared options on this function."""


SHARED = (
    Shared(
        "Reaching the broker",
        "All commands that talk to a running broker take these options.",
        broker_options,
    ),
    Shared("Options of az", "Commands on entities take these options, so that scripts for `az` work.", azure_options),
)


def commands(group: click.Group = main, path: str = "oncebus") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their full names, each group before its commands."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield f"{path} {name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path} {name}")


def reference() -> str:
    """Return the reference of all commands in Markdown: their help, arguments, options and examples."""
    shared = [f"\n### {each.heading}\n\n{each.purpose}\n\n" + "\n".join(_table(each.records())) for each in SHARED]
    return "\n".join([BEGIN, *shared, *(_section(path, command) for path, command in commands()), END])


def example_of(command: click.Command) -> str:
    """Return the example at the end of a command's help."""
    return " ".join((command.epilog or "").split()).removeprefix("Example: ")


def _section(path: str, command: click.Command) -> str:
    depth = "###" if path.count(" ") == 1 else "####"
    lines = [f"\n{depth} `{path}`\n", *_paragraphs(command), ""]
    if not isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        words = " ".join([path, *command.collect_usage_pieces(context)])
        lines += [f"    {words}", "", *_options(command)]
        lines += [f"Example: `{example_of(command)}`"]
    return "\n".join(lines)


def _paragraphs(command: click.Command) -> Iterator[str]:
    paragraphs = (command.help or "").split("\n\n")
    for at, paragraph in enumerate(paragraphs):
        if at:
            yield ""
        yield " ".join(paragraph.split())


def _options(command: click.Command) -> list[str]:
    records = _records(command)
    taken = [each for each in SHARED if set(each.records()) <= set(records)]
    shared = {record for each in taken for record in each.records()}
    lines = _table([record for record in records if record not in shared])
    if taken:
        lines += [f"Also: {', '.join(each.link for each in taken)}.", ""]
    return lines


def _records(command: click.Command) -> list[Record]:
    context = click.Context(command)
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    found = [option.get_help_record(context) for option in options]
    return [(_bare(names), _bare(text)) for names, text in filter(None, found)]


def _table(records: list[Record]) -> list[str]:
    rows = [f"| `{names}` | {text} |" for names, text in records]
    return ["| option | |", "|---|---|", *rows, ""] if rows else []


def _bare(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written_into(text: str) -> str:
    """Return the text with the part between the markers replaced by the current reference."""
    before, found, rest = text.partition(BEGIN)
    return before + reference() + rest.partition(END)[2] if found else text


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text()))
