"""A message's application properties as HTTP headers.

    Priority: "High"                            text, in quotes
    Attempts: 3        Weight: 0.5              a long; a double
    Urgent: true                                a boolean
    Due: Sun, 06 Nov 1994 08:49:37 GMT          a time; ISO 8601 if it has fractions of a second, or is before 1970

In quotes `\\"`, `\\\\` and `\\uXXXX` (a UTF-16 unit) stand for one character; any other backslash stands for itself. A
value without quotes that has none of these forms is text. Headers with a meaning in HTTP are not properties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from oncebus.amqp.types import Timestamp
from oncebus.model.entities import BadRequest
from oncebus.protocols.http.times import iso8601, parse_time, rfc1123
from oncebus.values.durations import MILLISECOND, SECOND
from oncebus.values.errors import clip

BROKER_PROPERTIES = "BrokerProperties"

_HTTP_NAMES = """
    accept accept-charset accept-encoding accept-language accept-ranges access-control-request-headers
    access-control-request-method age allow alt-svc authorization brokerproperties cache-control connection
    content-disposition content-encoding content-language content-length content-location content-md5 content-range
    content-type cookie
    date dnt early-data etag expect expires forwarded from host if-match if-modified-since if-none-match if-range
    if-unmodified-since keep-alive last-modified link location max-forwards origin pragma priority-update
    proxy-authenticate proxy-authorization proxy-connection range referer retry-after
    servicebusdlqsupplementaryauthorization servicebussupplementaryauthorization server set-cookie
    strict-transport-security te trailer transfer-encoding upgrade upgrade-insecure-requests user-agent vary via warning
    www-authenticate
"""
_OF_HTTP = frozenset(_HTTP_NAMES.split())
_OF_HTTP_BEGINNINGS = ("x-ms-", "x-forwarded-", "sec-")

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_ESCAPE = re.compile(r"\\(?:\"|\\|u[0-9A-Fa-f]{4})")
_LOOKS_LIKE_TIME = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} .{1,20}|[0-9]{4}-[0-9]{2}-[0-9]{2}T.{1,30}"
)
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]")
_LONGEST_NUMBER = 400
_INT64 = range(-(1 << 63), 1 << 63)

Value = str | bool | int | float | Timestamp
Header = tuple[str, bytes]


def is_property(name: str) -> bool:
    """Return whether a header with this name is a property of the message."""
    lowered = name.lower()
    return lowered not in _OF_HTTP and not lowered.startswith(_OF_HTTP_BEGINNINGS)


def properties_of(headers: Iterable[Header]) -> dict[str, Value]:
    """Return the properties among the headers of a request.

    Raises `BadRequest` if two names are equal or differ only in letter case.
    """
    found: dict[str, Value] = {}
    seen: set[str] = set()
    for name, value in headers:
        if is_property(name):
            if name.lower() in seen:
                raise BadRequest(f"The property {clip(name)} is given more than once.")
            seen.add(name.lower())
            found[name] = value_of(name, text_of(value))
    return found


def text_of(value: bytes) -> str:
    """Return the text of a header: UTF-8, or else Latin-1, the older encoding of HTTP."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def value_of(name: str, text: str) -> Value:
    """Parse the value in the text of a header. Raises `BadRequest`."""
    text = text.strip(" \t")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _unquote(name, text[1:-1])
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text) and int(text) in _INT64:
        return int(text)
    if len(text) < _LONGEST_NUMBER and _FRACTION.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if _LOOKS_LIKE_TIME.fullmatch(text):
        time = parse_time(text)
        if time is not None:
            return Timestamp(time // MILLISECOND)
    return text


def headers_of(properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the headers for properties. It skips names that cannot be headers, and values that have no text form."""
    for name, value in properties.items():
        text = text_for(value)
        if text is not None and _NAME.fullmatch(name) and is_property(name):
            yield name, text


def text_for(value: object) -> str | None:
    """Return the header text for a value; None if the value has no text form."""
    match value:
        case bool():
            return str(value).lower()
        case Timestamp():
            return _time_text(value * MILLISECOND)
        case int() | float():
            return str(value)
        case UUID():
            return f'"{value}"'
        case str():
            return f'"{_NOT_PLAIN.sub(_escape, value)}"'
    return None


def _time_text(time: int) -> str | None:
    try:
        # RFC 1123 has whole seconds only, and its parsers misread years of few digits.
        return rfc1123(time) if time % SECOND == 0 and time >= 0 else iso8601(time)
    except (OverflowError, ValueError):
        # Before the year 1, or after 9999.
        return None


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character in '"\\':
        return f"\\{character}"
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _unquote(name: str, text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)) if match[0][1] == "u" else match[0][1], text)
    try:
        # This joins the halves of surrogate pairs. A single half cannot be decoded.
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise BadRequest(
            f"The property {clip(name)} has value {clip(text)}. It contains half of a surrogate pair."
        ) from None
