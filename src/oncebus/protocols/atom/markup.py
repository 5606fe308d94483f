"""Builds XML as text. It uses the service's namespace prefixes, because some clients look for them by name."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from oncebus.protocols.http.errors import NOT_XML

# XML parsers turn a plain carriage return into a line feed.
_LINES = {"\r": "&#13;"}
_IN_ATTRIBUTES = {**_LINES, "\n": "&#10;", "\t": "&#9;", '"': "&quot;"}


def text(value: str) -> str:
    """Return text, escaped for use inside an element. Characters that XML cannot contain are replaced."""
    return escape(NOT_XML.sub("\ufffd", value), _LINES)


def tag(name: str, content: str = "", attributes: Mapping[str, str] | None = None) -> str:
    """Return an element. `content` is XML already, so it is not escaped."""
    given = "".join(f' {key}="{_quote(value)}"' for key, value in (attributes or {}).items())
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def field(name: str, value: str) -> str:
    """Return an element that contains plain text, which this function escapes."""
    return tag(name, text(value))


def _quote(value: str) -> str:
    return escape(NOT_XML.sub("\ufffd", value), _IN_ATTRIBUTES)
