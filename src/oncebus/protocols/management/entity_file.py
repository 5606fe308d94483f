"""A file that lists entities to create at the start. Missing entities are created; existing ones stay as they are.

The entities file and the official emulator's `Config.json` are such files. Each has a function that turns its content
into a `Wanted`. Everything else is here: reading the file, collecting its problems, and planning.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from oncebus.model.entities import Catalogue
from oncebus.protocols.management.documents import Object, find, is_object, kind_of, read_document, written_name
from oncebus.protocols.management.planning import plan
from oncebus.protocols.management.problems import FileRefused, Problems, item, member
from oncebus.protocols.management.wanted import Wanted

ReadContent = Callable[[Any, Problems], Wanted]
"""Reads the content of a file as far as possible, and records each problem."""


class EntityFile:
    """The entities that a file describes, checked as far as possible without the catalogue."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        self.name = name
        """The name of the file in errors and warnings."""
        self._wanted = wanted

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each setting of the file that has no effect here, or a different effect."""
        return self._wanted.warnings

    @classmethod
    def read(cls, path: Path, what: str, content: ReadContent) -> EntityFile:
        """Read a file. Raises `FileRefused` with all problems of the file; the error texts call the file `what`."""
        return cls.of(read_document(path, what, trailing_commas=True), f"{what} '{path}'", content)

    @classmethod
    def of(cls, document: Any, name: str, content: ReadContent) -> EntityFile:
        """Return the entities of a JSON value. Raises `FileRefused` with all its problems; the texts call it `name`."""
        problems = Problems()
        file = cls(name, content(document, problems))
        if problems:
            # Planning for an empty namespace finds the rest of the problems, so that one error shows them all.
            file._plan(Catalogue(), 0, problems)
        return file

    def added_to(self, catalogue: Catalogue, now: int) -> Catalogue:
        """Return the catalogue with the missing entities, one version higher; the same catalogue if none is missing.

        An existing entity stays as it is, even if the file describes it differently. Raises `FileRefused`.
        """
        return self._plan(catalogue, now, Problems())

    def _plan(self, catalogue: Catalogue, now: int, problems: Problems) -> Catalogue:
        try:
            return plan(self._wanted, catalogue, now, problems, leaves_existing=True).after
        except FileRefused as error:
            raise FileRefused(error.problems, self.name) from error


class FileReader:
    """Reads the JSON of a file.

    It records each problem with its location, and continues as if the bad value were missing.
    """

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def name_of(self, written: Object, path: str, word: str = "Name") -> str:
        """Return the object's name, from its member `word`.

        If it is missing or not a string, record a problem and return "".
        """
        name = find(written, word)
        if isinstance(name, str) and name:
            return name
        place = member(path, word)
        self._problems.add(
            place, "The name is missing." if name in (None, "") else f"The name {name!r} is not a string."
        )
        return ""

    def inner(self, written: Object, path: str, name: str) -> tuple[Object, str]:
        """Return the object in the member `name`, empty if it is missing, and its location."""
        as_written = written_name(written, name)
        if as_written is None:
            return {}, member(path, name)
        place = member(path, as_written)
        return self.object_of(written[as_written], place, "The member"), place

    def objects_in(self, written: Object, path: str, name: str) -> Iterator[tuple[str, Object]]:
        """Yield the objects of the list in the member `name`, each with its location. A missing list yields nothing."""
        as_written = written_name(written, name)
        if as_written is not None and written[as_written] is not None:
            yield from self.items_of(written[as_written], member(path, as_written))

    def items_of(self, value: Any, place: str) -> Iterator[tuple[str, Object]]:
        """Yield each object of a list, with its location."""
        if not isinstance(value, list):
            self._problems.add(place, f"The member is {kind_of(value)}. Not a list.")
            return
        for at, each in enumerate(value):
            if is_object(each):
                yield item(place, at), each
            else:
                self._problems.add(item(place, at), f"The member is {kind_of(each)}. Not an object.")

    def object_of(self, value: Any, path: str, what: str) -> Object:
        """Return the value if it is an object, else an empty object.

        Anything but an object or null is recorded as a problem.
        """
        if is_object(value):
            return value
        if value is not None:
            self._problems.add(path, f"{what} is {kind_of(value)}. Not an object.")
        return {}

    def check_known(self, written: Object, path: str, known: Iterable[str]) -> None:
        """Record each unknown member as a problem, because a misspelt property would otherwise be ignored."""
        names = list(known)
        lowered = {name.lower() for name in names}
        for name in written:
            if name.lower() not in lowered and not name.startswith("$"):
                near = difflib.get_close_matches(name, names, n=1)
                hint = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(names)}."
                self._problems.add(member(path, name), f"The member is unknown.{hint}")
