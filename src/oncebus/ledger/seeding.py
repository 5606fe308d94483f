"""A batch that remembers what a table holds already, and that goes on where a killed one stopped.

    seed-000003-TOKEN-FINGERPRINT.open    a seed is open; when it ends it claims generation 3. Its runs have its token

The content of the mark is its owner, as JSON, or "ended" after an error. A seed that finds the mark of an ended one
with its own number and fingerprint takes over the token, and with it the runs that are written already. Until the
generation is claimed, nobody sees them. Once it is claimed, by the seed or by another writer, the mark means nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from oncebus.ledger.aside_marks import is_given_up
from oncebus.ledger.batch import LedgerBatch
from oncebus.ledger.generations import Generation
from oncebus.ledger.listing import SEED, Listing
from oncebus.ledger.owner import Owner
from oncebus.values.errors import OncebusError

if TYPE_CHECKING:
    from oncebus.ledger.task_ledger import TaskLedger

_ENDED = b"ended"


class SeedBatch(LedgerBatch):
    """A batch outside a query whose parts stay when its process dies.

    `fingerprint` is hexadecimal and stands for the rows, the columns and the parts: only a seed with the same one goes
    on with them. `done` are the parts that an earlier attempt has written.
    """

    def __init__(self, ledger: TaskLedger, clock: int, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self.done: frozenset[int] = frozenset()
        super().__init__(ledger, clock)

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """See `LedgerBatch`. Leaves the mark."""
        super().begin(is_running, owner, run)
        self.ledger.mark(self._mark, Owner.this_process().to_json())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, OncebusError):
            super().__exit__(kind, error, trace)
        elif self.is_used:
            # After any other error than bad input, and after Ctrl-C, the same seed goes on with what is written.
            self.ledger.mark(self._mark, _ENDED)

    def commit(self) -> None:
        """See `LedgerBatch`. Removes the mark."""
        super().commit()
        self.ledger.unmark([self._mark])

    def discard(self) -> None:
        """See `LedgerBatch`. Removes the mark."""
        super().discard()
        self.ledger.unmark([self._mark])

    @property
    def _mark(self) -> str:
        return seed_mark(self.generation.number, self.generation.token, self._fingerprint)

    def _version(self, listing: Listing) -> Generation:
        for name, stamp in listing.stamps.items():
            found = SEED.fullmatch(name)
            if found is None or (int(found[1]), found[3]) != (listing.next_number, self._fingerprint):
                continue
            text = self.ledger.read_mark(name)
            if text == _ENDED or is_given_up(text, stamp):
                self.done = frozenset(run.part for run in listing.runs if run.token == found[2])
                return self._next(listing, found[2])
        return self._next(listing, uuid.uuid4().hex)


def seed_mark(number: int, token: str, fingerprint: str) -> str:
    """Return the name of the mark of a seed that is about to claim a generation."""
    return f"seed-{number:06d}-{token}-{fingerprint}.open"
