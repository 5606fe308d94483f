"""The trace context of a message: the application properties in which its sender says which trace it belongs to.

The official clients set `traceparent` and `tracestate`, as W3C defines them, and `Diagnostic-Id`. New clients put the
same text into `Diagnostic-Id` as into `traceparent`. Old ones set only this property, in this form or in one of their
own, which is ignored.
"""

from __future__ import annotations

from oncebus import amqp
from oncebus.amqp.types import DecodeError

PARENT, STATE, OLD_PARENT = "traceparent", "tracestate", "Diagnostic-Id"
SIGNS = (PARENT, OLD_PARENT)
"""A head without any of these texts has no trace context."""
LONGEST_STATE = 512
"""The longest state to pass on, in characters. W3C requires no more."""

_SIGNS = tuple(sign.encode() for sign in SIGNS)
_PARENT_LENGTH = 55
_FLAGS = slice(53, 55)
_ODD = "13579bdf"


def context_of(head: bytes) -> dict[str, str] | None:
    """Return the trace context in a head as the headers of W3C; None if there is none.

    The texts are not checked, except for their length.
    """
    if not any(sign in head for sign in _SIGNS):
        return None
    try:
        given = amqp.application_properties(head)
    except DecodeError:
        return None
    parent = _text(given.get(PARENT)) or _text(given.get(OLD_PARENT))
    # A later version of W3C's format may be longer, but not by much.
    if parent is None or not _PARENT_LENGTH <= len(parent) <= 2 * _PARENT_LENGTH:
        return None
    context = {PARENT: parent}
    state = _text(given.get(STATE))
    if state is not None and len(state) <= LONGEST_STATE:
        context[STATE] = state
    return context


def is_sampled(context: dict[str, str]) -> bool:
    """Return whether the sender says that it records the trace. False if its flags cannot be read."""
    flags = context[PARENT][_FLAGS]
    return len(flags) == 2 and flags[1] in _ODD


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        # Some clients encode texts as binary.
        return str(value, "ascii", "replace")
    return str(value) if isinstance(value, str) else None
