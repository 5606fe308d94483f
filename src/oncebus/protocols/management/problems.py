"""The problems of a file, each with its location, such as `resources[2].properties.lockDuration`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from oncebus.values.errors import OncebusError

MOST_PROBLEMS = 1000
"""The maximum number of problems that are kept for one file."""

_LONGEST_NAME = 80
_MOST_NAMES = 1000
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class Problem(NamedTuple):
    """One problem of a file. `path` is empty if it concerns the file as a whole."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class FileRefused(OncebusError, ValueError):
    """A file cannot be used. `problems` holds at least one problem. `file` names the file, or is empty."""

    def __init__(self, problems: Iterable[Problem], file: str = "") -> None:
        self.problems = tuple(problems)
        self.file = file
        super().__init__(" ".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """Return a line for each problem."""
        return [f"{self.file}: {problem}" if self.file else str(problem) for problem in self.problems]


class Fault(OncebusError, ValueError):
    """An error without a location. A caller that knows the location turns it into a `Problem`."""


class AlreadyReported(Fault):
    """A value is missing because of a problem that is already recorded."""

    def __init__(self) -> None:
        super().__init__("It depends on a value that has an error.")


class Problems:
    """Collects problems, each once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: str, text: str) -> None:
        """Record a problem. Line breaks become spaces."""
        if len(self._found) < MOST_PROBLEMS:
            self._found.setdefault(Problem(path, " ".join(text.split())))

    @contextmanager
    def record_at(self, path: str) -> Iterator[None]:
        """Record an error that the block raises, and continue after the block."""
        try:
            yield
        except AlreadyReported:
            pass
        except OncebusError as error:
            self.add(path, str(error))

    def check(self, file: str = "") -> None:
        """Raise `FileRefused` if any problem was recorded. `file` names the file."""
        if self:
            raise FileRefused(self, file)


def member(path: str, name: str) -> str:
    """Return the location of a member of the object at a path.

    Long names are shortened, because every value gets a location: long names could take much memory.
    """
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    if not _PLAIN.fullmatch(name):
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name


def item(path: str, index: int) -> str:
    """Return the location of an item of the list at a path."""
    return f"{path}[{index}]"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar, or None. Long names are not compared, because that takes too long."""
    if len(name) > _LONGEST_NAME:
        return None
    short = [each for each in islice(known, _MOST_NAMES) if len(each) <= _LONGEST_NAME]
    return next(iter(difflib.get_close_matches(name, short, n=1)), None)


def hint(meant: str | None) -> str:
    """Return a suggestion to append to an error text, such as "Did you mean …?"; empty if `meant` is None."""
    return "" if meant is None else f" Did you mean '{meant}'?"
