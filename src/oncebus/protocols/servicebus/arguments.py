"""Reads the arguments of a management request: the map in its body, by name and type."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from oncebus.model.entities import BadRequest, OutOfRange
from oncebus.protocols.servicebus.messages import of_timestamp

_MOST = (1 << 63) - 1
"""The largest number that the store holds. A ulong of AMQP may be larger."""


class RequestArguments:
    """The arguments of a request. Methods raise `BadRequest`, with the name, for a missing argument or a wrong type."""

    def __init__(self, body: Any) -> None:
        if body is None or body == b"":
            # Some clients omit an empty map.
            body = {}
        if not isinstance(body, dict):
            raise BadRequest(f"The body of the request has value {body!r:.100}. Not a map.")
        self._given: Mapping[Any, Any] = body

    def any(self, name: str) -> Any:
        """Return the argument as it was decoded, or None if it is missing."""
        return self._given.get(name)

    def text(self, name: str) -> str:
        """Return a string."""
        value = self.optional_text(name)
        if value is None:
            raise _bad(name, None, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, or None if it is missing."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, str):
            raise _bad(name, value, "a string")
        return None if value is None else str(value)

    def binary(self, name: str) -> bytes | None:
        """Return bytes, or None if they are missing."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, bytes):
            raise _bad(name, value, "a binary")
        return None if value is None else bytes(value)

    def flag(self, name: str) -> bool:
        """Return a boolean, or False if it is missing."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, bool):
            raise _bad(name, value, "true or false")
        return bool(value)

    def number(self, name: str, least: int = 0, otherwise: int | None = None, most: int = _MOST) -> int:
        """Return an integer. Raises `BadRequest` below `least` and `OutOfRange` above `most`."""
        value = self._given.get(name, otherwise)
        if not _is_whole(value) or value < least:
            raise _bad(name, value, f"a number from {least}")
        if value > most:
            raise _beyond(name, value, most)
        return int(value)

    def time(self, name: str) -> int:
        """Return a timestamp in microseconds since 1970."""
        value: Any = self._given.get(name)
        if not _is_whole(value):
            raise _bad(name, value, "a timestamp")
        return of_timestamp(value)

    def numbers(self, name: str) -> list[int]:
        """Return a list of at least one integer."""
        values = self._several(name)
        for value in values:
            if not _is_whole(value):
                raise _bad(name, value, "a number")
            if value > _MOST:
                raise _beyond(name, value, _MOST)
        return [int(value) for value in values]

    def lock_tokens(self, name: str) -> list[bytes]:
        """Return a list of at least one lock token."""
        values = self._several(name)
        for value in values:
            if not isinstance(value, uuid.UUID):
                raise _bad(name, value, "a uuid")
        return [value.bytes for value in values]

    def maps(self, name: str) -> list[RequestArguments]:
        """Return a list of at least one map, each as arguments."""
        return [RequestArguments(value) for value in self._several(name)]

    def _several(self, name: str) -> list[Any]:
        value = self._given.get(name)
        if not isinstance(value, list) or not value:
            raise _bad(name, value, "a list of one or more")
        return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _beyond(name: str, value: object, most: int) -> OutOfRange:
    return OutOfRange(f"The argument '{name}' has value {value}. The maximum is {most}.")


def _bad(name: str, value: object, wanted: str) -> BadRequest:
    return BadRequest(f"The argument '{name}' has value {value!r:.100}. Not {wanted}.")
