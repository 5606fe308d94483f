"""Where a broker keeps everything."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from oncebus.errors import OncebusError


@dataclass(frozen=True, slots=True)
class Folders:
    """Where everything lies, below the broker's data folder. On a cluster all machines see the same."""

    data: Path

    @property
    def inbox(self) -> Path:
        """What was accepted."""
        return self.data / "inbox"

    @property
    def outbox(self) -> Path:
        """What was judged."""
        return self.data / "outbox"

    @property
    def catalogue(self) -> Path:
        """The entities, a file for each version."""
        return self.data / "catalogue"

    @property
    def ledger(self) -> Path:
        """The keys that are remembered."""
        return self.data / "ledger"

    @property
    def checkpoint(self) -> Path:
        """Where the query stands."""
        return self.data / "checkpoint"

    @property
    def blobs(self) -> Path:
        """Large bodies."""
        return self.data / "blobs"

    @property
    def taken(self) -> Path:
        """How far the gateway has taken what was judged, for a pipeline that begins anew."""
        return self.data / "taken"

    @property
    def store(self) -> Path:
        """What receivers see."""
        return self.data / "store.db"


class NoteDamaged(OncebusError):
    """A note in the data folder is not what was written."""


def write_taken(folders: Folders, commit: int) -> None:
    """Note that the gateway has taken everything up to a commit. May be lost in a crash: then it was less."""
    temporary = folders.taken.with_name(".taken")
    temporary.write_text(f"{commit}\n")
    os.replace(temporary, folders.taken)


def read_taken(folders: Folders) -> int:
    """How far the gateway had come, at least."""
    try:
        text = folders.taken.read_text()
    except FileNotFoundError:
        return 0
    try:
        return int(text)
    except ValueError as error:
        raise NoteDamaged(f"File '{folders.taken}' holds {text!r} instead of a number. Delete it.") from error
