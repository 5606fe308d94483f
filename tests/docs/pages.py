"""Reads pages of the documentation: their samples, commands, tables and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
SAME = "…"
"""Stands for any text: within a line for a part of it, on a line of its own for any number of lines."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "


class Block(NamedTuple):
    """A code block with its language."""

    language: str
    text: str


class Command(NamedTuple):
    """A line of a shell session, and the output below it."""

    line: str
    printed: str


def page(name: str) -> str:
    """Return the text of a page, or of its section: `page.md#Section`."""
    path, has_section, section = name.partition("#")
    return sections(path)[section] if has_section else (DOCS / path).read_text()


def blocks(name: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page(name))]


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a shell session with their output."""
    assert block.text.startswith(_PROMPT), block.text
    for part in re.split(rf"^{re.escape(_PROMPT)}", block.text, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        yield Command(line, printed)


def program(name: str, language: str) -> tuple[str, str]:
    """Return all code blocks of a language in a page, which form one program, and their output."""
    code: list[str] = []
    printed: list[str] = []
    last = ""
    for block in blocks(name):
        if block.language == language:
            code.append(block.text)
        elif block.language == "text" and last == language:
            printed.append(block.text)
        last = block.language
    return "\n".join(code), "".join(printed)


def agrees(shown: str, printed: str) -> bool:
    """Return whether a page shows what was printed."""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == SAME:
            pattern += r"(?:[^\n]*\n)*"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split(SAME))) + r"\n"
    return re.fullmatch(pattern, printed) is not None


def sections(name: str) -> dict[str, str]:
    """Return the text below each second-level heading."""
    parts = re.split(r"^## (.+)\n", page(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def quoted_in_table(text: str) -> list[str]:
    """Return the quoted texts in a table, except those in the last column, which explains."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| text |"):
            found += re.findall(r"`([^`]+)`", line.rstrip("| ").rpartition(" | ")[0])
    return found


def links(name: str) -> Iterator[Path]:
    """Yield the files that a page links to."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page(name)):
        if "://" not in target:
            yield ((DOCS / name).parent / target).resolve()
