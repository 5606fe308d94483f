"""Paths of requests. They are parsed from the raw bytes, each segment decoded once:

    /{entity}/messages                          to send
    /{entity}/messages/head                     to receive
    /{entity}/messages/{id}/{lock token}        to settle; the id is a message's or a sequence number
    /{entity}/$messages                         to peek at messages, without receiving them; to purge them
    /{entity}/$duplicates                       the record of drops
    /{entity}/$forgets                          to forget the id of a message; the record of forgets
    /{entity}/$refusals                         refused operations, and why
    /{entity}/$detection                        to switch on detection
    /health, /health/live, /health/ready        whether the broker is healthy
    /metrics, /$quarantine, /$snapshot          the broker itself
    /$reset                                     to reset a broker that is there for tests

An entity's path may contain slashes, escaped or not, and any of these words: the parser reads a path from its end. A
slash in an id must be escaped. Fixed words may have any letter case.
"""

from __future__ import annotations

import enum
import uuid
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from oncebus.model.entities import BadRequest
from oncebus.protocols.http.errors import Refused
from oncebus.values.errors import clip

HEALTH = b"/health"
LIVE = b"/health/live"
READY = b"/health/ready"
PAGE = 100
"""Items on a page of a list if the client does not say how many."""
_LAST_SKIP = (1 << 31) - 1
LAST_NUMBER = (1 << 63) - 1


class Shape(enum.Enum):
    """The kind of resource that a path names."""

    MESSAGES = "messages"
    HEAD = "head"
    LOCK = "lock"
    PEEK = "$messages"
    DUPLICATES = "$duplicates"
    FORGETS = "$forgets"
    REFUSALS = "$refusals"
    DETECTION = "$detection"
    METRICS = "metrics"
    QUARANTINE = "$quarantine"
    RESET = "$reset"
    SNAPSHOT = "$snapshot"


_BELOW_ENTITY = frozenset(shape.value for shape in Shape if shape.value.startswith("$")) - {
    Shape.QUARANTINE.value,
    Shape.RESET.value,
    Shape.SNAPSHOT.value,
}


class MessagePath(NamedTuple):
    """The parts of a path. `entity` includes the sub-queue if the path names one. `token` is still text."""

    shape: Shape
    entity: str = ""
    id: str = ""
    token: str = ""


def segments_of(raw_path: bytes) -> list[str]:
    """Return the segments of a path, each decoded once. A slash at the start or the end is ignored."""
    return [_decode(segment) for segment in raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")]


def target_of(raw_path: bytes) -> MessagePath:
    """Parse a path. Raises `Refused` if it names no operation."""
    target = find_target(raw_path)
    if target is None:
        path = clip("/".join(segments_of(raw_path)))
        hint = "Entities are managed with an api-version, as in '?api-version=2021-05'."
        raise Refused(404, f"There is no operation at the path {path}. {hint}")
    return target


def find_target(raw_path: bytes) -> MessagePath | None:
    """Parse a path; return None if it names no operation."""
    segments = segments_of(raw_path)
    match [segment.lower() for segment in segments]:
        case ["metrics"]:
            return MessagePath(Shape.METRICS)
        case ["$quarantine"]:
            return MessagePath(Shape.QUARANTINE)
        case ["$reset"]:
            return MessagePath(Shape.RESET)
        case ["$snapshot"]:
            return MessagePath(Shape.SNAPSHOT)
        case [_, *_, "messages"]:
            return MessagePath(Shape.MESSAGES, "/".join(segments[:-1]))
        case [_, *_, "messages", "head"]:
            return MessagePath(Shape.HEAD, "/".join(segments[:-2]))
        case [_, *_, "messages", _, _]:
            return MessagePath(Shape.LOCK, "/".join(segments[:-3]), segments[-2], segments[-1])
        case [_, *_, last] if last in _BELOW_ENTITY:
            return MessagePath(Shape(last), "/".join(segments[:-1]))
    return None


def token_of(text: str) -> bytes:
    """Return the lock token that a GUID stands for. Raises `BadRequest`."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise BadRequest(f"The lock token {clip(text)} is not a GUID.") from None


def only_looks_like_a_lock(target: MessagePath) -> bool:
    """Return whether a path looks like that of a locked message but does not end with a token.

    It may be the path of a rule.
    """
    if target.shape is not Shape.LOCK:
        return False
    try:
        uuid.UUID(target.token)
    except ValueError:
        return True
    return False


def lock_path(entity: str, sequence: int, token: bytes) -> str:
    """Return the path at which a locked message is settled."""
    return f"/{quote(entity, safe='/$~')}/messages/{sequence}/{uuid.UUID(bytes=token)}"


def query_of(raw_query: bytes) -> dict[str, str]:
    """Return the query parameters by lower-case name. Raises `BadRequest` if a parameter has two different values."""
    try:
        pairs = parse_qsl(raw_query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise BadRequest("The query of the request is not url-encoded UTF-8.") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if query.setdefault(name.lower(), value) != value:
            raise BadRequest(f"The parameter {clip(name)} is given more than once.")
    return query


def has_api_version(raw_query: bytes) -> bool:
    """Return whether a request has an api-version, as all management requests do."""
    return any(pair.partition(b"=")[0].lower() == b"api-version" for pair in raw_query.split(b"&"))


def numbers_in(query: dict[str, str], name: str, most: int) -> list[int]:
    """Return the comma-separated numbers of a parameter, each once; at least one. Raises `BadRequest`."""
    if not query.get(name):
        raise BadRequest(f"The parameter '{name}' is missing.")
    words = query[name].split(",")
    if len(words) > most:
        raise BadRequest(f"The parameter '{name}' has {len(words)} numbers; {most} is the limit.")
    return list(dict.fromkeys(number_in({name: word or ","}, name, 0, 1, LAST_NUMBER) for word in words))


def number_in(query: dict[str, str], name: str, otherwise: int, least: int, most: int) -> int:
    """Return the number of a parameter, or `otherwise` if it is missing. Raises `BadRequest` outside of the range."""
    text = query.get(name, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise BadRequest(f"The parameter '{name}' has value {clip(text)}. Not a number from {least} to {most}.")
    return int(text)


def page_in(query: dict[str, str], most: int) -> tuple[int, int]:
    """Return how many items of a list to skip, and how many to return, at most `most`. Raises `BadRequest`."""
    return number_in(query, "$skip", 0, 0, _LAST_SKIP), number_in(query, "$top", PAGE, 1, most)


def _decode(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"The path segment {clip(segment.decode('latin-1'))} is not UTF-8.") from None
