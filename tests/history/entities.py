"""The entities of a run, and where a message sent to one arrives. Both the broker's setup and the checker use this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOCK_SECONDS = 4
COLOURS = ("red", "green", "blue")
SESSIONS = ("s0", "s1", "s2", "s3")
DAY = "P1D"
WINDOWS = {"PT20S": 20, "PT25S": 25, "PT40S": 40, DAY: 86_400}
"""Detection windows in seconds. The longest is longer than any run, so no id is ever forgotten."""

DEAD_LETTERS = "/$deadletterqueue"


@dataclass(frozen=True)
class Sink:
    """An entity that accepts sends. A message may come out at the places in `arrives`."""

    name: str
    window: str | None = DAY
    has_sessions: bool = False
    forwards_to: str | None = None
    subscriptions: tuple[str, ...] = ()
    detection_key: str | None = None
    """Where the id is that counts, if not the message id. Such a queue is partitioned by the message id."""

    @property
    def detects(self) -> bool:
        return self.window is not None

    @property
    def arrives(self) -> tuple[str, ...]:
        if self.subscriptions:
            return tuple(OUTLETS.get(place, place) for place in map(self.place, self.subscriptions))
        return (self.forwards_to or self.name,)

    def place(self, subscription: str) -> str:
        return f"{self.name}/Subscriptions/{subscription}"


OUTLETS = {"news/Subscriptions/onward": "collected"}
"""The subscriptions that forward, and their targets."""

DIRECT, PLAIN, SESSION, WINDOW = "direct", "plain", "sessions", "window"
FORWARDING, PASSING, NEWS, RECREATED = "forwarding", "passing", "news", "recreated"
DEALS, BY_PROPERTY, BY_BODY = "deals", "by-property", "by-body"
CHANGING = f"{NEWS}/Subscriptions/changing"

SINKS: Mapping[str, Sink] = {
    sink.name: sink
    for sink in (
        Sink(DIRECT),
        Sink(PLAIN, window=None),
        Sink(SESSION, has_sessions=True),
        Sink(WINDOW, window="PT20S"),
        Sink(FORWARDING, forwards_to="target"),
        # Its target has no detection, so a message that is forwarded twice arrives twice.
        Sink(PASSING, forwards_to="end"),
        Sink(NEWS, subscriptions=("all", "red", "changing", "onward")),
        Sink(RECREATED),
        # For transactions.
        Sink(DEALS),
        Sink(BY_PROPERTY, detection_key="property:order"),
        Sink(BY_BODY, detection_key="body"),
    )
}

RULES = {f"{NEWS}/Subscriptions/red": "red"}
"""The colour that a subscription's rule selects, if it never changes. `CHANGING` starts with the first colour."""

PLACES = (
    *(DIRECT, PLAIN, SESSION, WINDOW, "target", "end", RECREATED, "collected", DEALS, BY_PROPERTY, BY_BODY),
    *(f"{NEWS}/Subscriptions/{name}" for name in ("all", "red", "changing")),
)
"""The places that receivers read from. Each has dead letters too."""

_LOCKED = {"lockDuration": f"PT{LOCK_SECONDS}S", "maxDeliveryCount": 1000}


def _detecting(window: str) -> dict[str, object]:
    return {"requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": window}


def filter_of(colour: str) -> str:
    """Return the rule that selects one colour."""
    return f"colour = '{colour}'"


_UID = "uid:"


def wire_form(sink: Sink, uid: str, name: str, colour: str) -> tuple[str, str, dict[str, Any]]:
    """Return the body, the message id and the properties with which a message is sent.

    The body is its uid, unless the body counts as the id. Where another value counts, the message id is unique.
    """
    if sink.detection_key is None:
        return uid, name, {"colour": colour}
    body = name if sink.detection_key == "body" else uid
    return body, _UID + uid, {"colour": colour, "order": name}


def uid_of(body: str, message_id: str) -> str:
    """Return the uid of a message in its wire form."""
    return message_id.removeprefix(_UID) if message_id.startswith(_UID) else body


def described() -> list[dict[str, object]]:
    """Return all entities in the format of the entities file. Forwarding targets come first."""
    found: list[dict[str, object]] = [
        {"type": "queue", "name": "target", **_LOCKED, **_detecting(DAY)},
        {"type": "queue", "name": "end", **_LOCKED},
        {"type": "queue", "name": "collected", **_LOCKED},
    ]
    for sink in SINKS.values():
        detection: dict[str, object] = {} if sink.window is None else _detecting(sink.window)
        if sink.subscriptions:
            found.append({"type": "topic", "name": sink.name, **detection})
            found += [_subscription(sink, name) for name in sink.subscriptions]
            continue
        forward = {} if sink.forwards_to is None else {"forwardTo": sink.forwards_to}
        session = {"requiresSession": True} if sink.has_sessions else {}
        if sink.detection_key is not None:
            detection |= {"oncebusDetectionKey": sink.detection_key, "enablePartitioning": True}
        found.append({"type": "queue", "name": sink.name, **_LOCKED, **detection, **forward, **session})
    return found


def _subscription(sink: Sink, name: str) -> dict[str, object]:
    place = sink.place(name)
    made: dict[str, object] = {"type": "subscription", "topic": sink.name, "name": name, **_LOCKED}
    if place in OUTLETS:
        made["forwardTo"] = OUTLETS[place]
    colour = COLOURS[0] if place == CHANGING else RULES.get(place)
    if colour is not None:
        made["rules"] = [{"name": "colour", "sqlFilter": filter_of(colour)}]
    return made
