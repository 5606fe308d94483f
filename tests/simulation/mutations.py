"""Planted bugs, each one line. `tests/simulation/planting.py` shows how many lives find each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutation(NamedTuple):
    """A bug: in a file below `src/oncebus`, replace a text that occurs once."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("no fsync of the log", "engine/inbox/writer.py", "disk.sync_data(", "id("),
    Mutation(
        "folder not synced after a rename",
        "values/disk.py",
        "        raise\n    sync(folder)\n\n\ndef publish_new",
        "        raise\n\n\ndef publish_new",
    ),
)


def count(mutation: Mutation, source: Path = ROOT / "src") -> int:
    """Return how often the text of a mutation occurs in its file."""
    return (source / "oncebus" / mutation.file).read_text().count(mutation.old)


def plant(mutation: Mutation, source: Path) -> None:
    """Put a bug into a copy of the source."""
    path = source / "oncebus" / mutation.file
    path.write_text(path.read_text().replace(mutation.old, mutation.new))
