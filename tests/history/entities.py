"""The entities that a run uses, and where a message sent to one arrives. The broker is set up by it, the checker judges
by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LOCK_SECONDS = 4
COLOURS = ("red", "green", "blue")
SESSIONS = ("s0", "s1", "s2", "s3")
DAY = "P1D"
WINDOWS = {"PT20S": 20, "PT25S": 25, "PT40S": 40, DAY: 86_400}
"""Windows of detection, in seconds. In the longest no run ever forgets an id."""

DEAD_LETTERS = "/$deadletterqueue"


@dataclass(frozen=True)
class Sink:
    """An entity that takes sends. `arrives` are the places where a message may come out."""

    name: str
    window: str | None = DAY
    has_sessions: bool = False
    forwards_to: str | None = None
    subscriptions: tuple[str, ...] = ()

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
"""Subscriptions that forward, and where to."""

DIRECT, PLAIN, SESSION, WINDOW = "direct", "plain", "sessions", "window"
FORWARDING, PASSING, NEWS, RECREATED = "forwarding", "passing", "news", "recreated"
CHANGING = f"{NEWS}/Subscriptions/changing"

SINKS: Mapping[str, Sink] = {
    sink.name: sink
    for sink in (
        Sink(DIRECT),
        Sink(PLAIN, window=None),
        Sink(SESSION, has_sessions=True),
        Sink(WINDOW, window="PT20S"),
        Sink(FORWARDING, forwards_to="target"),
        # Its target detects nothing: a message that is forwarded twice is there twice.
        Sink(PASSING, forwards_to="end"),
        Sink(NEWS, subscriptions=("all", "red", "changing", "onward")),
        Sink(RECREATED),
    )
}

RULES = {f"{NEWS}/Subscriptions/red": "red"}
"""The colour that a subscription's rule asks for, where it never changes. `CHANGING` is made with the first colour."""

PLACES = (
    *(DIRECT, PLAIN, SESSION, WINDOW, "target", "end", RECREATED, "collected"),
    *(f"{NEWS}/Subscriptions/{name}" for name in ("all", "red", "changing")),
)
"""Where receivers receive; each has dead letters too."""

_LOCKED = {"lockDuration": f"PT{LOCK_SECONDS}S", "maxDeliveryCount": 1000}


def _detecting(window: str) -> dict[str, object]:
    return {"requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": window}


def filter_of(colour: str) -> str:
    """The rule that lets one colour pass."""
    return f"colour = '{colour}'"


def described() -> list[dict[str, object]]:
    """All of it, as the entities file has it. Targets come before what forwards to them."""
    found: list[dict[str, object]] = [
        {"type": "queue", "name": "target", **_LOCKED, **_detecting(DAY)},
        {"type": "queue", "name": "end", **_LOCKED},
        {"type": "queue", "name": "collected", **_LOCKED},
    ]
    for sink in SINKS.values():
        detection = {} if sink.window is None else _detecting(sink.window)
        if sink.subscriptions:
            found.append({"type": "topic", "name": sink.name, **detection})
            found += [_subscription(sink, name) for name in sink.subscriptions]
            continue
        forward = {} if sink.forwards_to is None else {"forwardTo": sink.forwards_to}
        session = {"requiresSession": True} if sink.has_sessions else {}
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
