"""Declares functions of the expression language, and checks their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncebus.protocols.management.documents import kind_of
from oncebus.protocols.management.problems import Fault
from oncebus.protocols.templates.scope import Deployment, Loops, Value

LONGEST_TEXT = 1 << 17
"""The maximum length of a string that a function may return, in characters."""

_ORDER = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a function call, and its context.

    The error for an argument of the wrong type names its position.
    """

    name: str
    values: Sequence[Value]
    deployment: Deployment
    loops: Loops

    def __len__(self) -> int:
        return len(self.values)

    def text(self, at: int) -> str:
        """Return the argument at a position. Raises `Fault` unless it is a string."""
        value = self.values[at]
        return value if isinstance(value, str) else self._refuse(at, "a string")

    def whole(self, at: int) -> int:
        """Return the argument at a position. Raises `Fault` unless it is an integer."""
        value = self.values[at]
        return value if isinstance(value, int) and not isinstance(value, bool) else self._refuse(at, "an int")

    def flag(self, at: int) -> bool:
        """Return the argument at a position. Raises `Fault` unless it is true or false."""
        value = self.values[at]
        return value if isinstance(value, bool) else self._refuse(at, "a bool")

    def array(self, at: int) -> list[Value]:
        """Return the argument at a position. Raises `Fault` unless it is an array."""
        value = self.values[at]
        return value if isinstance(value, list) else self._refuse(at, "an array")

    def members(self, at: int) -> dict[str, Value]:
        """Return the argument at a position. Raises `Fault` unless it is an object."""
        value = self.values[at]
        return value if isinstance(value, dict) else self._refuse(at, "an object")

    def all_are(self, kind: type[Any]) -> bool:
        """Return whether all arguments are of type `kind`."""
        return all(isinstance(value, kind) for value in self.values)

    def check_length(self, characters: int) -> None:
        """Raise `Fault` if a string of this length is too long. Call this before making the string."""
        if characters > LONGEST_TEXT:
            raise self.fault(f"would make a string of more than {LONGEST_TEXT} characters.")

    def fault(self, text: str) -> Fault:
        """Return the error for a call. Its text is "The function 'name'", followed by `text`."""
        return Fault(f"The function '{self.name}' {text}")

    def _refuse(self, at: int, wanted: str) -> Any:
        which = _ORDER[at] if at < len(_ORDER) else f"{at + 1}th"
        raise self.fault(f"takes {wanted} as its {which} argument, not {kind_of(self.values[at])}.")


@dataclass(frozen=True, slots=True)
class Function:
    """A function, and how many arguments it takes. `most` is None if there is no maximum.

    A shallow function does not look into its arguments, so a call is charged less.
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
    """Return a decorator that declares a function of the expression language.

    The function takes exactly `least` arguments if `most` is None, and `least` or more if `most` is -1.
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
