"""A batch that remembers what a table holds already, and that goes on where a killed one stopped.

    seed-000003-TOKEN-FINGERPRINT.open.0    a seed is open; when it ends it claims generation 3. Its runs have its token
    seed-000003-TOKEN-FINGERPRINT.open.1    the second attempt of this seed has taken over the token

The content of the mark is its owner, as JSON, or "ended" after an error. A seed that finds the mark of an ended one
with its own number and fingerprint takes over the token, and with it the runs that are written already. Of several that
try at once, one publishes the mark of the next attempt; the others start from the beginning, with tokens of their own.
Until the generation is claimed, nobody sees the runs. Once it is claimed, by the seed or by another writer, the marks
mean nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
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
        self._attempt = 0
        self.done: frozenset[int] = frozenset()
        super().__init__(ledger, clock)

    def begin(self, is_running: Callable[[str], bool], owner: Owner, run: str | None = None) -> None:
        """See `LedgerBatch`. Leaves the mark."""
        super().begin(is_running, owner, run)
        self.ledger.mark(self._mark(), Owner.this_process().to_json())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, OncebusError):
            super().__exit__(kind, error, trace)
        elif self.is_used or self._attempt:
            # After any other error than bad input, and after Ctrl-C, the same seed goes on with what is written.
            self.ledger.mark(self._mark(), _ENDED)

    def commit(self) -> None:
        """See `LedgerBatch`. Removes the marks."""
        super().commit()
        self._unmark()

    def discard(self) -> None:
        """See `LedgerBatch`. Removes the marks."""
        super().discard()
        self._unmark()

    def _mark(self, attempt: int | None = None) -> str:
        number = self._attempt if attempt is None else attempt
        return seed_mark(self.generation.number, self.generation.token, self._fingerprint, number)

    def _unmark(self) -> None:
        # The newest one last. Until it is gone, an earlier one cannot be taken over.
        for attempt in range(self._attempt + 1):
            self.ledger.unmark([self._mark(attempt)])

    def _version(self, listing: Listing) -> Generation:
        for token, attempt in self._ended(listing):
            mark = seed_mark(listing.next_number, token, self._fingerprint, attempt + 1)
            if self.ledger.mark_new(mark, Owner.this_process().to_json()):
                self._attempt = attempt + 1
                self.done = frozenset(run.part for run in self._listing().runs if run.token == token)
                return self._next(listing, token)
        return self._next(listing, uuid.uuid4().hex)

    def _ended(self, listing: Listing) -> Iterator[tuple[str, int]]:
        """Yield the token and the last attempt of each seed that this one could go on with."""
        last: dict[str, tuple[int, str]] = {}
        for name in listing.stamps:
            found = SEED.fullmatch(name)
            if found is not None and (int(found[1]), found[3]) == (listing.next_number, self._fingerprint):
                last[found[2]] = max(last.get(found[2], (-1, "")), (int(found[4]), name))
        for token, (attempt, name) in last.items():
            text = self.ledger.read_mark(name)
            if text == _ENDED or (text and is_given_up(text, listing.stamps[name])):
                yield token, attempt


def seed_mark(number: int, token: str, fingerprint: str, attempt: int) -> str:
    """Return the name of the mark of an attempt of a seed that is about to claim a generation."""
    return f"seed-{number:06d}-{token}-{fingerprint}.open.{attempt}"
