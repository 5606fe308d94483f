"""Processes of a ledger that die, or are held and go on later, before a chosen operation on its folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from oncebus.ledger import Ledger
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import parse_run_names
from oncebus.ledger.storage import Piece, Stamp, Storage
from oncebus.values.errors import OncebusError
from tests.simulation.disk import PowerCut


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


class Place:
    """Where a ledger is: a local folder. `tests.simulation.ledgers` has others, which have faults of their own."""

    def __init__(self, location: str) -> None:
        self.location = location

    def open(self) -> Ledger:
        """Return the ledger as a process sees it that is neither held nor killed."""
        return Ledger.open(self.location)

    def storage_of(self, process: Process) -> Storage:
        """Return the storage as a process sees it."""
        return Watched(LocalStorage(self.location), process)

    def fail(self, work: Callable[[Ledger], object]) -> str | None:
        """Perhaps do some work while the place itself fails. Return what happened; None if nothing was done."""


class Process:
    """A process that dies or is held before the first operation that `strikes` chooses."""

    def __init__(self, place: Place, strikes: Callable[[Operation], bool], *, dies: bool) -> None:
        self._place, self._strikes, self._dies = place, strikes, dies
        self._operations = 0
        self._is_held = False
        self.is_dead = False
        self._goes_on = threading.Event()
        self._is_settled = threading.Event()
        self._thread: threading.Thread | None = None

    def operate(self, kind: str, name: str = "") -> None:
        """Die or stop here if it is the time. The storage of the process calls this before each operation."""
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

        ledger = Ledger(self._place.storage_of(self))
        # What other processes have open is not open here.
        ledger._open_runs = {}

        def run() -> None:
            try:
                work(ledger)
            except (Died, PowerCut, OncebusError):
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


class Watched:
    """A storage as one process sees it."""

    def __init__(self, storage: Storage, process: Process) -> None:
        self.location = storage.location
        self._storage, self._process = storage, process
        self.is_verified, self.set_verified, self.forget = storage.is_verified, storage.set_verified, storage.forget
        self.read_part = storage.read_part

    def names(self) -> dict[str, Stamp]:
        self._process.operate("names")
        return self._storage.names()

    def read(self, name: str) -> memoryview:
        self._process.operate("read", name)
        return self._storage.read(name)

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        self._process.operate("publish", name)
        self._storage.publish(name, pieces)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        self._process.operate("publish new", name)
        return self._storage.publish_new(name, pieces)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._process.operate("delete", name)
            self._storage.delete([name])
