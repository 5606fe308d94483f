"""The reference of all commands, made from the commands themselves. `docs/cli.md` holds it, and a test compares:

python -m oncebus.cli.reference docs/cli.md        brings that file up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from oncebus.cli import main

BEGIN, END = "<!-- commands -->", "<!-- /commands -->"


def commands(group: click.Group = main, path: str = "oncebus") -> Iterator[tuple[str, click.Command]]:
    """All commands with their whole names; a group before what is in it."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield f"{path} {name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path} {name}")


def reference() -> str:
    """All commands in Markdown: what each is for, its arguments and options, and an example."""
    return "\n".join([BEGIN, *(_section(path, command) for path, command in commands()), END])


def example_of(command: click.Command) -> str:
    """The example that a command's help ends with."""
    return " ".join((command.epilog or "").split()).removeprefix("Example: ")


def _section(path: str, command: click.Command) -> str:
    depth = "###" if path.count(" ") == 1 else "####"
    lines = [f"\n{depth} `{path}`\n", *_paragraphs(command), ""]
    if not isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        words = " ".join([path, *command.collect_usage_pieces(context)])
        lines += [f"    {words}", "", *_options(command, context)]
        lines += [f"Example: `{example_of(command)}`"]
    return "\n".join(lines)


def _paragraphs(command: click.Command) -> Iterator[str]:
    paragraphs = (command.help or "").split("\n\n")
    for at, paragraph in enumerate(paragraphs):
        if at:
            yield ""
        yield " ".join(paragraph.split())


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [
        option.get_help_record(context)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    rows = [f"| `{_bare(names)}` | {_bare(text)} |" for names, text in filter(None, records)]
    return ["| option | |", "|---|---|", *rows, ""] if rows else []


def _bare(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written_into(text: str) -> str:
    """A text with the reference of today in place of the one it holds."""
    before, found, rest = text.partition(BEGIN)
    return before + reference() + rest.partition(END)[2] if found else text


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text()))
