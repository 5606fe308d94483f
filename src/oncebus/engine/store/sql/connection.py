"""A connection to the store's database: its transactions, and statements for many rows. What differs between databases
is in the subclasses: `oncebus.engine.store.sql.sqlite`, and `oncebus.engine.postgres.store`."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from oncebus.engine.store.errors import StoreError

_TOGETHER = (500, *(2**power for power in range(8, -1, -1)))
_MARKS = {length: ", ".join("?" * length) for length in _TOGETHER}
_T = TypeVar("_T")


class Answer(Protocol):
    """What a statement answers: rows, in the order of the statement."""

    def __iter__(self) -> Iterator[Any]:
        """Return the rows that were not read yet."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all other rows."""
        ...

    def close(self) -> None:
        """Read no other rows."""
        ...


Execute = Callable[..., Answer]


def portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split values for statements that take many at a time.

    The parts have few different lengths, so few statements are needed.
    """
    at = 0
    for size in _TOGETHER:
        while len(values) - at >= size:
            yield values[at : at + size]
            at += size


def lists(values: Sequence[_T]) -> Iterator[tuple[str, Sequence[_T]]]:
    """Split values for conditions with IN. Yield the placeholders and the values for each statement.

    The lists have few different lengths: the last value fills up the last list.
    """
    for at in range(0, len(values), _TOGETHER[0]):
        some = values[at : at + _TOGETHER[0]]
        length = min(1 << (len(some) - 1).bit_length(), _TOGETHER[0])
        yield _MARKS[length], some if length == len(some) else [*some, *[some[-1]] * (length - len(some))]


class Connection(ABC):
    """Runs statements, with `execute` and `executemany`, and transactions.

    A table that keeps changes in memory registers hooks: `before_commit` writes them out, `after_commit` keeps them,
    and `after_rollback` discards them.
    """

    is_shared: bool
    """Whether other processes change the database too. Then nothing read before a transaction counts inside it."""
    conflict: type[Exception]
    """Raised if a row has a value that another one has in a unique index."""

    def __init__(self, place: str, execute: Execute, executemany: Callable[..., object]) -> None:
        """`place` is for texts of errors."""
        self.place = place
        self.execute = execute
        self.executemany = executemany
        self.before_commit: list[Callable[[], None]] = []
        self.after_commit: list[Callable[[], None]] = []
        self.after_rollback: list[Callable[[], None]] = []
        self._inside = False

    @abstractmethod
    def close(self) -> None:
        """Close the connection. An open transaction is rolled back."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that no other one can come between."""

    @abstractmethod
    def _commit(self) -> None:
        """Make the transaction durable."""

    @abstractmethod
    def _roll_back(self) -> None:
        """End the transaction, if there is one, without a change. Raises nothing."""

    @abstractmethod
    def _raise_meaning(self, error: BaseException) -> None:
        """Raise a `StoreError` that the caller can act on if there is one for this failure. Otherwise do nothing."""

    def keep_file(self) -> None:
        """Keep the file as it is from now on, with all that was committed. Changes go elsewhere until `change_file`."""
        raise StoreError(f"Store '{self.place}' is not a file.")

    def change_file(self) -> None:
        """End what `keep_file` has begun."""
        raise StoreError(f"Store '{self.place}' is not a file.")

    @property
    def is_inside(self) -> bool:
        """Return whether a transaction is open."""
        return self._inside

    def execute_values(self, start: str, marks: str, rows: Iterable[tuple[Any, ...]], end: str = "") -> None:
        """Run a statement that takes rows of values, with many rows at a time. `marks` are the placeholders of one row.

        Each statement releases the interpreter's lock, and it takes long to get it back from other threads. With one
        statement for each row, a row takes about a hundred times as long while the gateway is busy.
        """
        for some in portions(list(rows)):
            statement = f"{start} {', '.join([marks] * len(some))} {end}"
            self.execute(statement, list(itertools.chain.from_iterable(some)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes of the block durable when it ends, or none of them if it fails."""
        if self._inside:
            raise StoreError(f"Store '{self.place}' is already in a transaction. Group the calls into one block.")
        self._inside = True
        try:
            self._begin()
            yield
            for hook in self.before_commit:
                hook()
            self._commit()
        except BaseException as error:
            self._roll_back()
            for hook in self.after_rollback:
                hook()
            self._raise_meaning(error)
            raise
        else:
            for hook in self.after_commit:
                hook()
        finally:
            self._inside = False

    def need_transaction(self) -> None:
        """Raise `StoreError` unless a transaction is open: a change outside of one would commit on its own."""
        if not self._inside:
            raise StoreError(
                f"Store '{self.place}' is changed outside of a transaction. Use 'with store.transaction():'."
            )
