"""How far the store has come."""

from __future__ import annotations

from oncebus.engine.store.records import Highest
from oncebus.engine.store.sql.tables import Tables

JUDGED, CATALOGUE = "judged", "catalogue"
"""Names of marks: the greatest time of a message with a key, and the newest version of the catalogue in any row."""


class IngestProgress:
    """The position, and the marks that tell how new the other parts of the data folder must be."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def position(self) -> int:
        """Return the last inbox commit that was ingested."""
        return self._tables.progress.position()

    def highest(self) -> list[Highest]:
        """Return the highest number and time ever ingested, for every partition of every entity.

        Together with the inbox after `position()` they cover all numbers ever assigned. Subscriptions have time 0.
        """
        return self._tables.progress.all_highest()

    def newest_time(self) -> int:
        """Return the highest time ever ingested, including that of deleted entities; 0 if there is none."""
        return self._tables.progress.time()

    def judged_time(self) -> int:
        """Return the highest time of an ingested message that detection looked up in the ledger; 0 if there is none."""
        return self._tables.progress.mark(JUDGED)

    def forget_judged(self) -> None:
        """Reset `judged_time`, because there is a new ledger."""
        self._tables.for_change().progress.forget_mark(JUDGED)

    def catalogue_version(self) -> int:
        """Return the newest version of the catalogue that is known to have been in use."""
        return self._tables.progress.mark(CATALOGUE)

    def note_catalogue(self, version: int) -> None:
        """Record that a version of the catalogue is in use."""
        self._tables.for_change().progress.raise_mark(CATALOGUE, version)
