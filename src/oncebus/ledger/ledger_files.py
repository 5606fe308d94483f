"""Reads the files of a ledger: lists them, and opens its description, generations and runs."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress

from oncebus.ledger.description import FILE_NAME, Description, LedgerMismatch, not_a_ledger, not_shared
from oncebus.ledger.generations import Generation
from oncebus.ledger.listing import GENERATION, Listing
from oncebus.ledger.names import RunName
from oncebus.ledger.run import CorruptRun, Run
from oncebus.ledger.storage import Stamp, Storage


class LedgerFiles:
    """The files at one place. `identity` is the id that the ledger must have, or None."""

    def __init__(self, storage: Storage, identity: str | None = None) -> None:
        self._storage = storage
        self.location = storage.location
        self.identity = identity
        self._open_runs, self._known_generations, self._descriptions = _caches_of(storage.location)

    def _run(self, name: RunName) -> Run:
        text = str(name)
        known = self._open_runs.get(text)
        stamp = self._stamps.get(text)
        if stamp is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.location}/{text}")
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            run = self._verified_run(text, stamp)
        except CorruptRun:
            if not self._storage.forget(text):
                raise
            # The copy on this machine was damaged. If the file itself is damaged too, this raises.
            run = self._verified_run(text, stamp)
        self._open_runs[text] = (stamp, run)
        return run

    def _verified_run(self, name: str, stamp: Stamp) -> Run:
        run = Run(f"{self.location}/{name}", self._storage.read(name))
        if not self._storage.is_verified(name, stamp):
            run.verify()
            self._storage.set_verified(name, stamp)
        return run

    def _list(self) -> Listing:
        while True:
            # A generation file may be deleted between listing and reading. Then list again.
            with suppress(FileNotFoundError):
                return self._list_once()

    def _list_once(self) -> Listing:
        stamps = self._storage.names()
        self._check_identity(stamps.get(FILE_NAME))
        self._stamps = stamps
        # Another thread may open or close runs meanwhile.
        for name in list(self._open_runs):
            if name not in stamps:
                self._open_runs.pop(name, None)
        return Listing.of(
            stamps, [self._generation(name, stamp) for name, stamp in stamps.items() if GENERATION.fullmatch(name)]
        )

    def description(self) -> Description:
        """Return what `ledger.json` says. Raises `LedgerMismatch` if there is no ledger here."""
        stamps = self._storage.names()
        stamp = stamps.get(FILE_NAME)
        if stamp is None:
            raise not_a_ledger(self.location, stamps)
        self._check_identity(stamp)
        return self._description(stamp)

    def _check_identity(self, stamp: Stamp | None) -> None:
        """Raise `LedgerNotShared` if this is not the ledger that the caller asked for."""
        if self.identity is None:
            return
        found = None if stamp is None else self._description(stamp).id
        if found != self.identity:
            raise not_shared(self.location, found)

    def _description(self, stamp: Stamp) -> Description:
        known = self._descriptions.get(stamp)
        if known is None:
            known = Description.from_json(bytes(self._storage.read(FILE_NAME)), self.location)
            self._descriptions[stamp] = known
        return known

    def _generation(self, name: str, stamp: Stamp) -> Generation:
        known = self._known_generations.get(name)
        if known is None or known[0] != stamp:
            try:
                generation = Generation.from_json(bytes(self._storage.read(name)))
            except (ValueError, TypeError, KeyError) as error:
                raise LedgerMismatch(f"Ledger '{self.location}' has an unreadable '{name}': {error}") from error
            if generation.file_name != name:
                raise LedgerMismatch(f"Ledger '{self.location}' has '{generation.file_name}' under the name '{name}'.")
            known = self._known_generations[name] = (stamp, generation)
        return known[1]


# Opening a run costs more than searching it, and Spark reuses its Python workers. So a process keeps the open runs of
# the ledgers that it used last. Its threads share them: every change of such a dictionary is a single operation, and
# nobody iterates over one.
_Opened = tuple[dict[str, tuple[Stamp, Run]], dict[str, tuple[Stamp, Generation]], dict[Stamp, Description]]
_OPENED: dict[str, _Opened] = {}
_MOST_OPENED = 16
_OPENING = threading.Lock()


def _caches_of(location: str) -> _Opened:
    with _OPENING:
        found = _OPENED.pop(location, None) or ({}, {}, {})
        _OPENED[location] = found
        while len(_OPENED) > _MOST_OPENED:
            del _OPENED[next(iter(_OPENED))]
        return found
