"""What is wrong with a file, all of it, each with its place: `resources[2].properties.lockDuration`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from oncebus.errors import OncebusError

MOST_PROBLEMS = 1000
"""That are kept of one file."""

_LONGEST_NAME = 80
_MOST_NAMES = 1000
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class Problem(NamedTuple):
    """One thing that is wrong. `path` is empty where it is the file as a whole."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class FileRefused(OncebusError, ValueError):
    """A file cannot be used. `problems` holds everything that is wrong with it; there is at least one.

    `file` is what the file is called, where that is known.
    """

    def __init__(self, problems: Iterable[Problem], file: str = "") -> None:
        self.problems = tuple(problems)
        self.file = file
        super().__init__(" ".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """A line for each problem."""
        return [f"{self.file}: {problem}" if self.file else str(problem) for problem in self.problems]


class Fault(OncebusError, ValueError):
    """One thing is wrong; whoever knows where makes it a problem."""


class Told(Fault):
    """Something cannot be had because of a problem that is known already."""

    def __init__(self) -> None:
        super().__init__("It depends on something that is wrong.")


class Problems:
    """Collects what is wrong, each thing once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, path: str, text: str) -> None:
        """Note a problem. Line breaks become spaces."""
        if len(self._found) < MOST_PROBLEMS:
            self._found.setdefault(Problem(path, " ".join(text.split())))

    @contextmanager
    def noted(self, path: str) -> Iterator[None]:
        """Note what the block raises, and go on behind it."""
        try:
            yield
        except Told:
            pass
        except OncebusError as error:
            self.add(path, str(error))

    def check(self, file: str = "") -> None:
        """Raise `FileRefused` if there is any. `file` is what the file is called."""
        if self:
            raise FileRefused(self, file)


def member(path: str, name: str) -> str:
    """The place of a member of the object at a path. Long names are cut: each value has its place made."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    if not _PLAIN.fullmatch(name):
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name


def item(path: str, index: int) -> str:
    """The place of an item of the list at a path."""
    return f"{path}[{index}]"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the known names, if any is. Long names have none: comparing them takes too long."""
    if len(name) > _LONGEST_NAME:
        return None
    short = [each for each in islice(known, _MOST_NAMES) if len(each) <= _LONGEST_NAME]
    return next(iter(difflib.get_close_matches(name, short, n=1)), None)


def hint(meant: str | None) -> str:
    """The end of an error that says what was meant, or nothing."""
    return "" if meant is None else f" Did you mean '{meant}'?"
