"""Defines the base class of the errors that Oncebus raises on purpose, and shortens values for error texts."""

from __future__ import annotations

import enum
import re

# An error of a Spark task arrives as text: a Python traceback that ends with the class and its message.
_RAISED_IN_A_TASK = re.compile(r"^(?:\S*: )?oncebus(?:\.\w+)+: (.+)$", re.MULTILINE)


class ErrorKind(enum.Enum):
    """What went wrong. A protocol derives its status from it."""

    BAD_REQUEST = "bad request"
    OUT_OF_RANGE = "out of range"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too large"
    NOT_ALLOWED = "not allowed"
    UNAUTHORIZED = "unauthorized"
    DISABLED = "disabled"
    NOT_FOUND = "not found"
    EXISTS = "exists"
    CONFLICT = "conflict"
    QUOTA = "quota"
    LOCKED = "locked"
    LOST_LOCK = "lost lock"
    GONE = "gone"
    ROLLED_BACK = "rolled back"
    BUSY = "busy"
    INTERNAL = "internal"


class OncebusError(Exception):
    """An error the caller can fix. The message is one line: it names the thing and the value, and says what to do.

    `field` is the property that the error is about, by its name in descriptions, if it is about one. `told` is what
    remote clients are told if the message is for the operator alone, because it names files and paths.
    """

    kind = ErrorKind.INTERNAL
    told: str | None = None
    field: str | None = None


NO_ROOM = "The server is busy: there is no room on its disk. Please retry the operation later."
NOT_READY = "The server is busy. Please retry the operation later."
NOT_STORABLE = "The message contains a value that cannot be stored."
FAILED = "The service was unable to process the request; please retry the operation."
"""What clients are told of an unexpected error."""


def clip(value: object, most: int = 100) -> str:
    """Return the repr of a value for an error text, shortened to `most` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def line_of_task(text: str) -> str | None:
    """Return the message of our error in the text of Spark's error about a failed task; None if there is none."""
    found = _RAISED_IN_A_TASK.findall(text)
    return " ".join(found[-1].split()) if found else None
