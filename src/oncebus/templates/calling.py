"""Declaring functions of the expression language, and checking their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncebus.management.documents import kind_of
from oncebus.management.problems import Fault
from oncebus.templates.scope import Deployment, Loops, Value

LONGEST_TEXT = 1 << 17
"""Characters of a string that a function may return."""

_ORDER = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, and its surroundings. An argument of the wrong type is an error with its position."""

    name: str
    values: Sequence[Value]
    deployment: Deployment
    loops: Loops

    def __len__(self) -> int:
        return len(self.values)

    def text(self, at: int) -> str:
        """Return an argument that must be a string. Raises `Fault`."""
        value = self.values[at]
        return value if isinstance(value, str) else self._refuse(at, "a string")

    def whole(self, at: int) -> int:
        """Return an argument that must be an integer. Raises `Fault`."""
        value = self.values[at]
        return value if isinstance(value, int) and not isinstance(value, bool) else self._refuse(at, "an int")

    def flag(self, at: int) -> bool:
        """Return an argument that must be true or false. Raises `Fault`."""
        value = self.values[at]
        return value if isinstance(value, bool) else self._refuse(at, "a bool")

    def array(self, at: int) -> list[Value]:
        """Return an argument that must be an array. Raises `Fault`."""
        value = self.values[at]
        return value if isinstance(value, list) else self._refuse(at, "an array")

    def members(self, at: int) -> dict[str, Value]:
        """Return an argument that must be an object. Raises `Fault`."""
        value = self.values[at]
        return value if isinstance(value, dict) else self._refuse(at, "an object")

    def all_are(self, kind: type[Any]) -> bool:
        """Return whether all arguments have a type."""
        return all(isinstance(value, kind) for value in self.values)

    def check_length(self, characters: int) -> None:
        """Raise `Fault` if a string would be too long. Call this before making the string."""
        if characters > LONGEST_TEXT:
            raise self.fault(f"would make a string of more than {LONGEST_TEXT} characters.")

    def fault(self, text: str) -> Fault:
        """Return the error for a call; `text` continues after the function's name."""
        return Fault(f"The function '{self.name}' {text}")

    def _refuse(self, at: int, wanted: str) -> Any:
        which = _ORDER[at] if at < len(_ORDER) else f"{at + 1}th"
        raise self.fault(f"takes {wanted} as its {which} argument, not {kind_of(self.values[at])}.")


@dataclass(frozen=True, slots=True)
class Function:
    """A function, and how many arguments it takes; `most` is None for any number.

    A shallow function does not go through the content of its arguments, so a call costs less.
    """

    name: str
    least: int
    most: int | None
    call: Callable[[Arguments], Value]
    is_shallow: bool


FUNCTIONS: dict[str, Function] = {}
"""All functions by lower-case name."""


def function(
    name: str, least: int = 1, most: int | None = None, *, is_shallow: bool = False
) -> Callable[[Callable[[Arguments], Value]], Callable[[Arguments], Value]]:
    """Return a decorator that declares a function.

    The function takes exactly `least` arguments if `most` is None, and any number above `least` if `most` is -1.
    """

    def declared(call: Callable[[Arguments], Value]) -> Callable[[Arguments], Value]:
        at_most = least if most is None else None if most < 0 else most
        FUNCTIONS[name.lower()] = Function(name, least, at_most, call, is_shallow)
        return call

    return declared


def check_count(name: str, least: int, most: int | None, given: int) -> None:
    """Raise `Fault` if a call has too few or too many arguments."""
    if given < least or (most is not None and given > most):
        wanted = f"at least {least}" if most is None else str(least) if most == least else f"{least} to {most}"
        raise Fault(
            f"The function '{name}' takes {wanted} argument{'' if wanted.split()[-1] == '1' else 's'}, not {given}."
        )
