"""Names of entities: which are valid, and how paths are written and compared. How ids of sessions are compared."""

from __future__ import annotations

import re

from oncebus.model.access.scopes import MOST_SEGMENTS
from oncebus.model.entities.errors import BadRequest, OutOfRange

LONGEST_PATH = 260
"""The maximum length for a queue or a topic, whose name may have several segments."""

LONGEST_NAME = 50
"""The maximum length for a subscription or a rule."""

DEFAULT_RULE = "$Default"
SUBSCRIPTIONS = "Subscriptions"

# The service does not document the tilde, but accepts it, and MassTransit uses it in names of topics.
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")


def key_of_path(path: str) -> str:
    """Return the key of a path. Two paths that mean the same entity have the same key."""
    return path.lower()


def session_key(session: str) -> str:
    """Return the form in which session ids are compared: those that differ only in letter case are the same session.

    Each character is upper-cased by itself, as .NET's `OrdinalIgnoreCase` does. A character whose upper case is several
    characters, or is ASCII while it is not, stays as it is.
    """
    return session.upper() if session.isascii() else "".join(map(_upper, session))


def subscription_path(topic: str, subscription: str) -> str:
    """Return the path of a subscription."""
    return f"{topic}/{SUBSCRIPTIONS}/{subscription}"


def rule_path(topic: str, subscription: str, rule: str) -> str:
    """Return the path of a rule."""
    return f"{subscription_path(topic, subscription)}/Rules/{rule}"


def property_name(field: str) -> str:
    """Return the service's name for a field of a description, such as LockDuration for `lock_duration`."""
    return "".join(word.capitalize() for word in field.split("_"))


def path_of_address(address: str) -> str:
    """Return the path in a client's address, which may have a scheme, a host and slashes around the path."""
    _, found, after_scheme = address.partition("://")
    if found:
        _, _, address = after_scheme.partition("/")
    return address.strip("/")


def check_path(path: str) -> None:
    """Raise `BadRequest` unless a path is valid for a queue or a topic."""
    if not path:
        raise BadRequest("The entity path is empty.", field="name")
    if len(path) > LONGEST_PATH:
        raise OutOfRange(f"Entity path '{path}' exceeds the '{LONGEST_PATH}' character limit.", field="name")
    if path.startswith("/") or path.endswith("/"):
        raise BadRequest(f"The entity path '{path}' cannot contain '/' as prefix or suffix.", field="name")
    segments = path.split("/")
    for segment in segments:
        if not segment:
            raise BadRequest(f"The entity path '{path}' contains an empty segment.", field="name")
        if not _SEGMENT.fullmatch(segment):
            raise _bad_characters(path)
        _check_no_dots(segment, path)
    if len(segments) > MOST_SEGMENTS:
        raise OutOfRange(
            f"Entity path '{path}' has {len(segments)} segments; {MOST_SEGMENTS} is the limit.", field="name"
        )
    if any(segment.lower() == SUBSCRIPTIONS.lower() for segment in segments[1:]):
        raise BadRequest(
            f"The entity path '{path}' contains the segment '{SUBSCRIPTIONS}', which is reserved.", field="name"
        )


def check_rule_name(name: str) -> None:
    """Raise `BadRequest` unless a name is valid for a rule."""
    if name.lower() != DEFAULT_RULE.lower():
        check_subscription_name(name)


def check_subscription_name(name: str) -> None:
    """Raise `BadRequest` unless a name is valid for a subscription."""
    if not name:
        raise BadRequest("The entity name is empty.", field="name")
    if len(name) > LONGEST_NAME:
        raise OutOfRange(f"Entity name '{name}' exceeds the '{LONGEST_NAME}' character limit.", field="name")
    if not _SEGMENT.fullmatch(name):
        raise _bad_characters(name)
    _check_no_dots(name, name)


def _check_no_dots(segment: str, name: str) -> None:
    if segment in (".", ".."):
        raise BadRequest(f"'{name}' contains the segment '{segment}', which an address cannot contain.", field="name")


def _bad_characters(name: str) -> BadRequest:
    return BadRequest(
        f"'{name}' contains character(s) that is not allowed by Service Bus. Entity segments can contain only letters,"
        " numbers, periods (.), hyphens (-), and underscores (_).",
        field="name",
    )


def _upper(character: str) -> str:
    if character.isascii():
        return character.upper()
    # The title case is the one-character form of some letters whose upper case has two.
    for found in (character.upper(), character.title()):
        if len(found) == 1 and not found.isascii():
            return found
    return character
