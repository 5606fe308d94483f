"""What the path of a request names. It is read from the bytes that came, each segment decoded once:

    /{entity}/messages                          to send
    /{entity}/messages/head                     to receive
    /{entity}/messages/{id}/{lock token}        to settle; the id is a message's or a sequence number
    /{entity}/$messages                         to look at messages, without receiving them
    /{entity}/$duplicates                       the record of drops
    /{entity}/$refusals                         what was refused, and why
    /health, /health/live, /health/ready        whether the broker is well
    /metrics, /$quarantine                      the broker itself

An entity's path has slashes of its own, escaped or not, and may hold any of these words but the last ones: the shape is
judged from the end. An id that has a slash must have it escaped. Fixed words may have any case.
"""

from __future__ import annotations

import enum
import uuid
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from oncebus.errors import shown
from oncebus.http.errors import Refused, bad

HEALTH = b"/health"
LIVE = b"/health/live"
READY = b"/health/ready"
LAST_NUMBER = (1 << 63) - 1


class Shape(enum.Enum):
    """What sort of thing is addressed."""

    MESSAGES = "messages"
    HEAD = "head"
    LOCK = "lock"
    PEEK = "$messages"
    DUPLICATES = "$duplicates"
    REFUSALS = "$refusals"
    METRICS = "metrics"
    QUARANTINE = "$quarantine"


class MessagePath(NamedTuple):
    """What a request is about. `entity` is its path, with the sub-queue if one is named; `token` as it was written."""

    shape: Shape
    entity: str = ""
    id: str = ""
    token: str = ""


def segments_of(raw_path: bytes) -> list[str]:
    """The segments of a path, each decoded once. A slash at either end makes no difference."""
    return [_decoded(segment) for segment in raw_path.removeprefix(b"/").removesuffix(b"/").split(b"/")]


def target_of(raw_path: bytes) -> MessagePath:
    """What a path names, or a refusal."""
    target = find_target(raw_path)
    if target is None:
        raise no_operation(raw_path)
    return target


def no_operation(raw_path: bytes) -> Refused:
    """That a path is no operation's."""
    path = shown("/".join(segments_of(raw_path)))
    hint = "Entities are managed with an api-version, as in '?api-version=2021-05'."
    return Refused(404, f"There is no operation at the path {path}. {hint}")


def find_target(raw_path: bytes) -> MessagePath | None:
    """What a path names; None where it is no operation's."""
    segments = segments_of(raw_path)
    words = [segment.lower() for segment in segments]
    if words == ["metrics"]:
        return MessagePath(Shape.METRICS)
    if words == ["$quarantine"]:
        return MessagePath(Shape.QUARANTINE)
    if len(words) > 1 and words[-1] == "messages":
        return MessagePath(Shape.MESSAGES, "/".join(segments[:-1]))
    if len(words) > 2 and words[-2:] == ["messages", "head"]:
        return MessagePath(Shape.HEAD, "/".join(segments[:-2]))
    if len(words) > 3 and words[-3] == "messages":
        return MessagePath(Shape.LOCK, "/".join(segments[:-3]), segments[-2], segments[-1])
    if len(words) > 1 and words[-1] == "$duplicates":
        return MessagePath(Shape.DUPLICATES, "/".join(segments[:-1]))
    if len(words) > 1 and words[-1] == "$refusals":
        return MessagePath(Shape.REFUSALS, "/".join(segments[:-1]))
    if len(words) > 1 and words[-1] == "$messages":
        return MessagePath(Shape.PEEK, "/".join(segments[:-1]))
    return None


def token_of(text: str) -> bytes:
    """The lock token that is written as a GUID."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise bad(f"The lock token {shown(text)} is not a GUID.") from None


def only_looks_like_a_lock(target: MessagePath) -> bool:
    """Whether a path is not that of a message that is held, which ends with a token, but may be that of a rule."""
    if target.shape is not Shape.LOCK:
        return False
    try:
        uuid.UUID(target.token)
    except ValueError:
        return True
    return False


def lock_path(entity: str, sequence: int, token: bytes) -> str:
    """Where a message that is held is settled."""
    return f"/{quote(entity, safe='/$~')}/messages/{sequence}/{uuid.UUID(bytes=token)}"


def query_of(raw_query: bytes) -> dict[str, str]:
    """The parameters of a request, their names in lower case. One that comes twice is refused."""
    try:
        pairs = parse_qsl(raw_query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise bad("The query of the request is not url-encoded UTF-8.") from None
    query: dict[str, str] = {}
    for name, value in pairs:
        if query.setdefault(name.lower(), value) != value:
            raise bad(f"The parameter {shown(name)} is given more than once.")
    return query


def has_api_version(raw_query: bytes) -> bool:
    """Whether a request names the version of an API, as all that manages entities does."""
    return any(pair.partition(b"=")[0].lower() == b"api-version" for pair in raw_query.split(b"&"))


def numbers_in(query: dict[str, str], name: str, most: int) -> list[int]:
    """Whole numbers with commas between them, each once; at least one."""
    if not query.get(name):
        raise bad(f"The parameter '{name}' is missing.")
    words = query[name].split(",")
    if len(words) > most:
        raise bad(f"The parameter '{name}' has {len(words)} numbers; {most} is the limit.")
    return list(dict.fromkeys(number_in({name: word or ","}, name, 0, 1, LAST_NUMBER) for word in words))


def number_in(query: dict[str, str], name: str, otherwise: int, least: int, most: int) -> int:
    """A whole number among the parameters."""
    text = query.get(name, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise bad(f"The parameter '{name}' has value {shown(text)}. Not a number from {least} to {most}.")
    return int(text)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise bad(f"The path segment {shown(segment.decode('latin-1'))} is not UTF-8.") from None
