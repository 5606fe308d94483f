"""Processes of a ledger that die, or are held and go on later, before a chosen operation on its folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from oncebus.ledger import Ledger
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import parse_run_names
from oncebus.ledger.storage import Piece, Stamp
from oncebus.values.errors import OncebusError


class Died(Exception):
    """The process of a writer was killed."""


class Operation(NamedTuple):
    """Something that a process is about to do with the folder. `number` counts its operations of all kinds."""

    number: int
    kind: str
    name: str = ""

    @property
    def is_merge(self) -> bool:
        """Return whether a merged run is about to be published."""
        return self.kind == "publish" and any(run.is_merged for run in parse_run_names([self.name]))


class Process(LocalStorage):
    """A folder as one process sees it, which dies or is held before the first operation that `strikes` chooses."""

    def __init__(self, folder: str, strikes: Callable[[Operation], bool], *, dies: bool) -> None:
        super().__init__(folder)
        self._strikes, self._dies = strikes, dies
        self._operations = 0
        self._is_held = False
        self.is_dead = False
        self._goes_on = threading.Event()
        self._is_settled = threading.Event()
        self._thread: threading.Thread | None = None

    def names(self) -> dict[str, Stamp]:
        self._operate("names")
        return super().names()

    def read(self, name: str) -> memoryview:
        self._operate("read", name)
        return super().read(name)

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        self._operate("publish", name)
        super().publish(name, pieces)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        self._operate("publish new", name)
        return super().publish_new(name, pieces)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._operate("delete", name)
            super().delete([name])

    def _operate(self, kind: str, name: str = "") -> None:
        if not self.is_dead and not self._is_held and self._strikes(Operation(self._operations, kind, name)):
            if self._dies:
                self.is_dead = True
            else:
                self._is_held = True
                self._is_settled.set()
                self._goes_on.wait()
        if self.is_dead:
            raise Died
        self._operations += 1

    def start(self, work: Callable[[Ledger], object]) -> bool:
        """Do the work until its end, or until it is held. Return whether it is held."""

        ledger = Ledger(self)
        # What other processes have open is not open here.
        ledger._open_runs = {}

        def run() -> None:
            try:
                work(ledger)
            except (Died, OncebusError):
                pass
            finally:
                self._is_settled.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._is_settled.wait()
        if not self._is_held:
            self._thread.join()
        return self._is_held

    def go_on(self) -> None:
        """Do the rest of the work."""
        assert self._thread is not None
        self._goes_on.set()
        self._thread.join()

    def kill(self) -> None:
        """End the work at the operation at which it is held."""
        self.is_dead = True
        self.go_on()
