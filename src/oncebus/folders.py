"""Where a broker keeps everything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oncebus.files import make_folder


@dataclass(frozen=True, slots=True)
class Folders:
    """Where everything lies, below the broker's data folder. On a cluster all machines see the same."""

    data: Path

    def make(self) -> None:
        """Make the data folder. One that was not there is for its owner alone: messages and keys lie in it."""
        make_folder(self.data, mode=0o700)

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
        """What Spark notes while a query runs."""
        return self.data / "checkpoint"

    @property
    def body_files(self) -> Path:
        """Large bodies."""
        return self.data / "blobs"

    @property
    def repair(self) -> Path:
        """The note of a repair that has begun; it is gone when the repair is done."""
        return self.data / "repair.json"

    @property
    def store(self) -> Path:
        """What receivers see."""
        return self.data / "store.db"
