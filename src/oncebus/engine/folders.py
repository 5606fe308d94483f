"""Defines the layout of a data folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oncebus.values import disk


@dataclass(frozen=True, slots=True)
class Folders:
    """The files and folders in a broker's data folder. On a cluster, all machines must see the same data folder."""

    data: Path

    def make(self) -> None:
        """Create the data folder if it is missing, readable by its owner only: it holds messages and keys."""
        disk.make_folder(self.data, mode=0o700)

    @property
    def inbox(self) -> Path:
        """Return the folder of the inbox."""
        return self.data / "inbox"

    @property
    def outbox(self) -> Path:
        """Return the folder of the outbox."""
        return self.data / "outbox"

    @property
    def catalogue(self) -> Path:
        """Return the folder of the catalogue, which has one file for each version."""
        return self.data / "catalogue"

    @property
    def ledger(self) -> Path:
        """Return the folder of the ledger."""
        return self.data / "ledger"

    @property
    def checkpoint(self) -> Path:
        """Return the folder of Spark's checkpoint."""
        return self.data / "checkpoint"

    @property
    def body_files(self) -> Path:
        """Return the folder of body files."""
        return self.data / "bodies"

    @property
    def pipeline_lock(self) -> Path:
        """Return the file that a pipeline locks while it runs."""
        return self.data / "pipeline.lock"

    @property
    def repair(self) -> Path:
        """Return the file that exists while a repair is unfinished."""
        return self.data / "repair.json"

    @property
    def snapshot(self) -> Path:
        """Return the folder of the newest snapshot: see `oncebus.engine.snapshot`."""
        return self.data / "snapshot"

    @property
    def store(self) -> Path:
        """Return the file of the delivery store."""
        return self.data / "store.db"

    @property
    def gateway_lock(self) -> Path:
        """Return the file that a gateway locks: the lock of the inbox."""
        return self.inbox / "lock"
