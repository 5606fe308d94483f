"""Paths of management requests:

    /{entity}                                                   a queue or a topic
    /{topic}/subscriptions[/{subscription}[/rules[/{rule}]]]
    /$Resources/queues, /$Resources/topics                      all of them
    /$namespaceinfo

An entity's path may contain slashes, escaped or not. Fixed words may have any letter case. An entity's name may contain
the segment `subscriptions` only as its first one, so any later `subscriptions` separates a topic from its
subscriptions.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from oncebus.model.entities import BadRequest, subscription_path
from oncebus.model.entities.names import SUBSCRIPTIONS, rule_path
from oncebus.protocols.http.errors import Refused
from oncebus.protocols.http.paths import segments_of
from oncebus.values.errors import clip


class AtomKind(enum.Enum):
    """The kind of resource that a path names."""

    NAMESPACE = "namespace"
    QUEUES = "queues"
    TOPICS = "topics"
    ENTITY = "entity"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    RULES = "rules"
    RULE = "rule"


class AtomPath(NamedTuple):
    """The parts of a path. `name` is the name of a queue or topic."""

    kind: AtomKind
    name: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def path(self) -> str:
        """Return the normalised path. A request's token must be valid for this path."""
        match self.kind:
            case AtomKind.NAMESPACE:
                return "$namespaceinfo"
            case AtomKind.QUEUES | AtomKind.TOPICS:
                return f"$Resources/{self.kind.value}"
            case AtomKind.SUBSCRIPTIONS:
                return f"{self.name}/{SUBSCRIPTIONS}"
            case AtomKind.SUBSCRIPTION:
                return subscription_path(self.name, self.subscription)
            case AtomKind.RULES:
                return f"{subscription_path(self.name, self.subscription)}/Rules"
            case AtomKind.RULE:
                return rule_path(self.name, self.subscription, self.rule)
        return self.name


def target_of(raw_path: bytes) -> AtomPath:
    """Parse the path of a request. Raises `Refused` with status 404, or `BadRequest` for a sub-queue."""
    segments = "/".join(segments_of(raw_path)).split("/")
    words = [segment.lower() for segment in segments]
    if words == ["$namespaceinfo"]:
        return AtomPath(AtomKind.NAMESPACE)
    if words[0] == "$resources":
        if words[1:] not in (["queues"], ["topics"]):
            raise Refused(
                404, f"There is no list at the path {clip('/'.join(segments))}. The lists are queues and topics."
            )
        return AtomPath(AtomKind(words[1]))
    if words[-1] == "$deadletterqueue":
        raise BadRequest(f"The path {clip('/'.join(segments))} is a sub-queue, which has no description of its own.")
    if SUBSCRIPTIONS.lower() not in words[1:]:
        return AtomPath(AtomKind.ENTITY, "/".join(segments))
    at = words.index(SUBSCRIPTIONS.lower(), 1)
    topic, below = "/".join(segments[:at]), segments[at + 1 :]
    if not below:
        return AtomPath(AtomKind.SUBSCRIPTIONS, topic)
    if len(below) == 1:
        return AtomPath(AtomKind.SUBSCRIPTION, topic, below[0])
    if words[at + 2] == "rules" and len(below) <= 3:
        kind = AtomKind.RULES if len(below) == 2 else AtomKind.RULE
        return AtomPath(kind, topic, below[0], "" if len(below) == 2 else below[2])
    raise Refused(404, f"There is nothing at the path {clip('/'.join(segments))}.")
