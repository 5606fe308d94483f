"""What entities may be called, and how their paths are written and compared."""

from __future__ import annotations

import re

from oncebus.access.scopes import MOST_SEGMENTS
from oncebus.entities.errors import BadRequest, OutOfRange

LONGEST_PATH = 260
"""Of a queue or a topic, whose names may have segments."""

LONGEST_NAME = 50
"""Of a subscription or a rule."""

DEFAULT_RULE = "$Default"
SUBSCRIPTIONS = "Subscriptions"

# The tilde is in no list of the service's, but it takes it, and MassTransit names topics with it.
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+")


def key_of_path(path: str) -> str:
    """What two paths have in common that mean the same entity."""
    return path.lower()


def subscription_path(topic: str, subscription: str) -> str:
    """The path under which a subscription is addressed."""
    return f"{topic}/{SUBSCRIPTIONS}/{subscription}"


def rule_path(topic: str, subscription: str, rule: str) -> str:
    """The path under which a rule is addressed."""
    return f"{subscription_path(topic, subscription)}/Rules/{rule}"


def property_name(field: str) -> str:
    """Return the name that the service has for a field of a description: `lock_duration` is LockDuration."""
    return "".join(word.capitalize() for word in field.split("_"))


def path_of_address(address: str) -> str:
    """The path in what a client gives as an address: with or without scheme, host and slashes around it."""
    _, found, after_scheme = address.partition("://")
    if found:
        _, _, address = after_scheme.partition("/")
    return address.strip("/")


def check_path(path: str) -> None:
    """Refuse what cannot be the name of a queue or a topic."""
    if not path:
        raise BadRequest("The entity path is empty.")
    if len(path) > LONGEST_PATH:
        raise OutOfRange(f"Entity path '{path}' exceeds the '{LONGEST_PATH}' character limit.")
    if path.startswith("/") or path.endswith("/"):
        raise BadRequest(f"The entity path '{path}' cannot contain '/' as prefix or suffix.")
    segments = path.split("/")
    for segment in segments:
        if not segment:
            raise BadRequest(f"The entity path '{path}' contains an empty segment.")
        if not _SEGMENT.fullmatch(segment):
            raise _bad_characters(path)
        _check_no_dots(segment, path)
    if len(segments) > MOST_SEGMENTS:
        raise OutOfRange(f"Entity path '{path}' has {len(segments)} segments; {MOST_SEGMENTS} is the limit.")
    if any(segment.lower() == SUBSCRIPTIONS.lower() for segment in segments[1:]):
        raise BadRequest(f"The entity path '{path}' contains the segment '{SUBSCRIPTIONS}', which is reserved.")


def check_subscription_name(name: str) -> None:
    """Refuse what cannot be the name of a subscription."""
    _check_name(name)


def check_rule_name(name: str) -> None:
    """Refuse what cannot be the name of a rule."""
    if name.lower() != DEFAULT_RULE.lower():
        _check_name(name)


def _check_name(name: str) -> None:
    if not name:
        raise BadRequest("The entity name is empty.")
    if len(name) > LONGEST_NAME:
        raise OutOfRange(f"Entity name '{name}' exceeds the '{LONGEST_NAME}' character limit.")
    if not _SEGMENT.fullmatch(name):
        raise _bad_characters(name)
    _check_no_dots(name, name)


def _check_no_dots(segment: str, name: str) -> None:
    if segment in (".", ".."):
        raise BadRequest(f"'{name}' contains the segment '{segment}', which no address can hold.")


def _bad_characters(name: str) -> BadRequest:
    return BadRequest(
        f"'{name}' contains character(s) that is not allowed by Service Bus. Entity segments can contain only letters,"
        " numbers, periods (.), hyphens (-), and underscores (_)."
    )
