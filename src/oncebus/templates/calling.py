"""How functions of the expression language are declared, and take what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncebus.management.documents import kind_of
from oncebus.management.problems import Fault
from oncebus.templates.scope import Deployment, Loops, Value

LONGEST_TEXT = 1 << 17
"""Characters that a function may make."""

_ORDER = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is given, and where it stands. What it cannot use it refuses by its number and its kind."""

    name: str
    values: Sequence[Value]
    deployment: Deployment
    loops: Loops

    def __len__(self) -> int:
        return len(self.values)

    def text(self, at: int) -> str:
        """An argument that must be a string."""
        value = self.values[at]
        return value if isinstance(value, str) else self._refuse(at, "a string")

    def whole(self, at: int) -> int:
        """An argument that must be a whole number."""
        value = self.values[at]
        return value if isinstance(value, int) and not isinstance(value, bool) else self._refuse(at, "an int")

    def flag(self, at: int) -> bool:
        """An argument that must be true or false."""
        value = self.values[at]
        return value if isinstance(value, bool) else self._refuse(at, "a bool")

    def array(self, at: int) -> list[Value]:
        """An argument that must be an array."""
        value = self.values[at]
        return value if isinstance(value, list) else self._refuse(at, "an array")

    def members(self, at: int) -> dict[str, Value]:
        """An argument that must be an object."""
        value = self.values[at]
        return value if isinstance(value, dict) else self._refuse(at, "an object")

    def all_are(self, kind: type[Any]) -> bool:
        """Whether all arguments are of a kind."""
        return all(isinstance(value, kind) for value in self.values)

    def check_length(self, characters: int) -> None:
        """Refuse to make a text that is too long; before it is made."""
        if characters > LONGEST_TEXT:
            raise self.fault(f"would make a string of more than {LONGEST_TEXT} characters.")

    def fault(self, text: str) -> Fault:
        """That something else about the call is wrong."""
        return Fault(f"The function '{self.name}' {text}")

    def _refuse(self, at: int, wanted: str) -> Any:
        which = _ORDER[at] if at < len(_ORDER) else f"{at + 1}th"
        raise self.fault(f"takes {wanted} as its {which} argument, not {kind_of(self.values[at])}.")


@dataclass(frozen=True, slots=True)
class Function:
    """A function by the name it is written with, and how many arguments it takes; `most` is None for any number.

    A shallow one does not look at all that is in its arguments.
    """

    name: str
    least: int
    most: int | None
    call: Callable[[Arguments], Value]
    is_shallow: bool


FUNCTIONS: dict[str, Function] = {}
"""By name in lower case."""


def function(
    name: str, least: int = 1, most: int | None = None, *, is_shallow: bool = False
) -> Callable[[Callable[[Arguments], Value]], Callable[[Arguments], Value]]:
    """Declare a function. It takes exactly `least` arguments where no `most` is given; -1 is any number."""

    def declared(call: Callable[[Arguments], Value]) -> Callable[[Arguments], Value]:
        at_most = least if most is None else None if most < 0 else most
        FUNCTIONS[name.lower()] = Function(name, least, at_most, call, is_shallow)
        return call

    return declared


def check_count(name: str, least: int, most: int | None, given: int) -> None:
    """Refuse a call with too few arguments or too many."""
    if given < least or (most is not None and given > most):
        wanted = f"at least {least}" if most is None else str(least) if most == least else f"{least} to {most}"
        raise Fault(f"The function '{name}' takes {wanted} argument{'' if wanted == '1' else 's'}, not {given}.")
