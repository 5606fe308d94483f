"""A configuration file of the official emulator at the start of a broker: what is missing is made."""

from __future__ import annotations

from pathlib import Path

from oncebus.emulator.config import read_config
from oncebus.entities import Catalogue
from oncebus.management.documents import read_document
from oncebus.management.planning import plan
from oncebus.management.problems import FileRefused, Problems
from oncebus.management.wanted import Wanted

WHAT = "Configuration file"


class ConfigFile:
    """The entities that a file describes, read and checked as far as they can be alone."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path = path
        self._wanted = wanted

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the file says that is taken otherwise."""
        return self._wanted.warnings

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read a file. Raises `FileRefused`, with everything that is wrong with it."""
        problems = Problems()
        wanted = read_config(read_document(path, WHAT), problems)
        if problems:
            # An empty namespace shows what is wrong beyond that.
            _plan(wanted, Catalogue(), 0, problems, path)
        return cls(path, wanted)

    def added_to(self, catalogue: Catalogue, now: int) -> Catalogue:
        """The catalogue with those that are missing, as one version more; the same one if none is.

        What exists is left as it is, whatever the file says of it. Raises `FileRefused`.
        """
        return _plan(self._wanted, catalogue, now, Problems(), self.path)


def _plan(wanted: Wanted, catalogue: Catalogue, now: int, problems: Problems, path: Path) -> Catalogue:
    try:
        return plan(wanted, catalogue, now, problems, leaves_existing=True).after
    except FileRefused as error:
        raise FileRefused(error.problems, f"{WHAT} '{path}'") from error
