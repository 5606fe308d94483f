"""A batch that continues from a ledger and joins it at the end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from oncebus.ledger.generations import Generation

if TYPE_CHECKING:
    from oncebus.ledger.ledger import Ledger


class LedgerBatch:
    """One batch that continues from a ledger and joins it at the end.

    The version of the ledger it sees is fixed when it is made. Leaving the block normally lets its keys join, once;
    leaving it by an exception forgets them.

    `number` is 0, or the number of the batch of the query that this is: such a batch may be repeated after it has
    joined. It then sees the ledger below itself again, and replaces what it has left there.
    """

    def __init__(self, ledger: Ledger, generation: Generation, clock: int, *, number: int = 0) -> None:
        self.ledger = ledger
        self.generation = generation
        self.clock = clock
        self.number = number
        self.is_used = False
        self._is_over = False

    def __enter__(self) -> LedgerBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            if kind is None:
                self.commit()
            else:
                self.discard()

    def commit(self) -> None:
        """Let what was judged in this batch join the ledger."""
        self._is_over = True
        if not self.generation.is_in_query:
            self.ledger.commit_batch(self.generation)
        elif self.is_used:
            self.ledger.commit_version(self.generation, self.number)

    def discard(self) -> None:
        """Forget what was judged in this batch."""
        self._is_over = True
        if not self.generation.is_in_query:
            self.ledger.discard_batch(self.generation)
        elif self.is_used:
            self.ledger.discard_version(self.generation, self.number)
