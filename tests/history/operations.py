"""What clients are going to do: endless plans, each a function of the seed and the client's name alone.

What a step leads to depends on the broker (which message comes, whether an answer does); which steps come does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .entities import (
    CHANGING,
    COLOURS,
    DEAD_LETTERS,
    DIRECT,
    FORWARDING,
    NEWS,
    PASSING,
    PLACES,
    PLAIN,
    RECREATED,
    SESSION,
    SESSIONS,
    SINKS,
    WINDOW,
    WINDOWS,
)

AMQP, HTTP = "amqp", "http"
COMPLETE, ABANDON, DEFER, DEAD_LETTER, RENEW = "complete", "abandon", "defer", "dead-letter", "renew"


@dataclass(frozen=True)
class Message:
    """One message to be sent. `uid` is its body and its alone; its id may be that of others, for them to be duplicates.

    A retry has a uid of its own, so that the history can tell which of them was delivered. `due` is in seconds from the
    moment it is sent.
    """

    uid: str
    id: str
    colour: str
    session: str | None = None
    due: float | None = None


@dataclass(frozen=True)
class Send:
    """Send messages in one request, and again, under new uids, while nobody knows whether they were accepted."""

    entity: str
    messages: tuple[Message, ...]
    via: str


@dataclass(frozen=True)
class Receive:
    """Receive messages and settle each by the action at its index. A session is named where there are sessions."""

    place: str
    via: str
    actions: tuple[str, ...]
    session: str | None = None


@dataclass(frozen=True)
class Cancel:
    """Cancel one of the messages that this client has scheduled. `pick`, of 0 to 1, chooses."""

    pick: float


@dataclass(frozen=True)
class ReceiveDeferred:
    """Receive and complete one of the messages that this client has deferred."""

    pick: float


@dataclass(frozen=True)
class Resubmit:
    """Resubmit dead letters of a place: by the broker's own operation, or by sending a copy."""

    place: str
    copies: bool


@dataclass(frozen=True)
class ChangeWindow:
    """Change how long ids are remembered."""

    entity: str
    window: str


@dataclass(frozen=True)
class ChangeRule:
    """Let another colour pass."""

    place: str
    colour: str


@dataclass(frozen=True)
class Recreate:
    """Delete an entity and make it again: the new one knows no ids."""

    entity: str


@dataclass(frozen=True)
class Pause:
    """Do nothing."""

    seconds: float


Step = Send | Receive | Cancel | ReceiveDeferred | Resubmit | ChangeWindow | ChangeRule | Recreate | Pause

_SHARED = 200
_DEAD_LETTERED = tuple(place for place in PLACES if place not in (WINDOW, RECREATED))
_RECEIVED_BY_HTTP = (DIRECT, "target")
"""Nobody else receives there. A request over HTTP hides no message, so their order can be judged most strictly."""


class _Planner:
    """Draws steps for one client."""

    def __init__(self, seed: int, client: str) -> None:
        self.chance = random.Random(f"{seed} {client}")
        self._client = client
        self._sent = 0
        self._ids: dict[str, list[str]] = {}

    def pause(self, longest: float) -> Pause:
        return Pause(round(self.chance.uniform(0, longest), 3))

    def messages(self, entity: str, count: int, *, may_wait: bool = True) -> tuple[Message, ...]:
        """Fresh ids for most, else one of its own that was sent before, or one that other clients use as well."""
        sink, made = SINKS[entity], []
        session = self.chance.choice(SESSIONS) if sink.has_sessions else None
        for _ in range(count):
            self._sent += 1
            uid = f"{self._client}.{self._sent}"
            ids = self._ids.setdefault(entity, [])
            draw = self.chance.random()
            if draw < 0.2 and ids:
                name = self.chance.choice(ids[-40:])
            elif draw < 0.35:
                name = f"shared-{self.chance.randrange(_SHARED)}"
            else:
                name = f"id-{uid}"
                ids.append(name)
            due = round(self.chance.uniform(0.5, 6.0), 1) if may_wait and self.chance.random() < 0.2 else None
            made.append(Message(uid, name, self.chance.choice(COLOURS), session, due))
        return tuple(made)

    def scheduled(self, entity: str) -> Message:
        """One message that waits for a while."""
        [message] = self.messages(entity, 1)
        return replace(message, due=round(self.chance.uniform(1.0, 8.0), 1))

    def send(self, via: str, *entities: str) -> Send:
        entity = self.chance.choice(entities)
        count = self.chance.choice([1, 1, 1, 2, 5])
        return Send(entity, self.messages(entity, count), via)

    def receive(self, via: str, *places: str) -> Receive:
        place = self.chance.choice(places)
        if via == HTTP:
            actions = self._actions(self.chance.randint(1, 8), [COMPLETE] * 12 + [ABANDON, RENEW])
            return Receive(place, via, actions)
        likely = [COMPLETE] * 12 + [ABANDON, DEFER, DEAD_LETTER, DEAD_LETTER, RENEW]
        session = self.chance.choice(SESSIONS) if place == SESSION else None
        if place.endswith(DEAD_LETTERS):
            likely = [COMPLETE] * 4 + [ABANDON]
        return Receive(place, via, self._actions(self.chance.randint(1, 10), likely), session)

    def _actions(self, count: int, likely: list[str]) -> tuple[str, ...]:
        return tuple(self.chance.choice(likely) for _ in range(count))


def _over_amqp(planner: _Planner) -> Iterator[Step]:
    chance = planner.chance
    places = [place for place in PLACES if place not in _RECEIVED_BY_HTTP and place != RECREATED]
    letters = [place + DEAD_LETTERS for place in _DEAD_LETTERED]
    while True:
        draw = chance.random()
        if draw < 0.08:
            entity = chance.choice([DIRECT, SESSION, NEWS, FORWARDING])
            yield Send(entity, (planner.scheduled(entity),), AMQP)
            yield planner.pause(1.5)
            yield Cancel(1.0)
        elif draw < 0.42:
            yield planner.send(AMQP, DIRECT, DIRECT, PLAIN, SESSION, SESSION, FORWARDING, PASSING, NEWS, NEWS)
        elif draw < 0.80:
            yield planner.receive(AMQP, *places, SESSION, SESSION)
        elif draw < 0.86:
            yield planner.receive(AMQP, *letters)
        elif draw < 0.89:
            yield Cancel(chance.random())
        elif draw < 0.97:
            yield ReceiveDeferred(chance.random())
        else:
            yield Resubmit(chance.choice([PLAIN, SESSION, f"{NEWS}/Subscriptions/all", "end"]), chance.random() < 0.5)
        yield planner.pause(0.1)


def _over_http(planner: _Planner) -> Iterator[Step]:
    while True:
        yield planner.send(HTTP, DIRECT, DIRECT, PLAIN, SESSION, FORWARDING, PASSING, NEWS)
        # Slowly enough for the others to receive most of it.
        yield planner.pause(0.3)


def _receiving(planner: _Planner) -> Iterator[Step]:
    while True:
        yield planner.receive(HTTP, *_RECEIVED_BY_HTTP)
        yield planner.pause(0.02)


def _changing(planner: _Planner) -> Iterator[Step]:
    """Sends to the queue whose window changes, changes it and a rule, and alone uses the queue that is made again.

    It alone does each of these, so it knows under which window and to which incarnation it sent.
    """
    chance = planner.chance
    windows = [window for window, seconds in WINDOWS.items() if seconds < 100]
    names = [f"again-{number}" for number in range(12)]
    for number in range(1 << 60):
        draw = chance.random()
        if draw < 0.55:
            # Few ids, so that each meets itself on both sides of the window's end.
            sent = tuple(
                Message(f"w.{number}.{at}", chance.choice(names), chance.choice(COLOURS))
                for at in range(chance.choice([1, 1, 2]))
            )
            yield Send(WINDOW, sent, chance.choice([AMQP, HTTP]))
        elif draw < 0.62:
            yield ChangeWindow(WINDOW, chance.choice(windows))
        elif draw < 0.70:
            yield ChangeRule(CHANGING, chance.choice(COLOURS))
        elif draw < 0.85:
            sent = tuple(
                Message(f"r.{number}.{at}", chance.choice(names), chance.choice(COLOURS))
                for at in range(chance.choice([1, 1, 3]))
            )
            yield Send(RECREATED, sent, AMQP)
        elif draw < 0.96:
            yield planner.receive(AMQP, RECREATED)
        else:
            yield Recreate(RECREATED)
        yield planner.pause(0.3)


CLIENTS = {
    "amqp-0": _over_amqp,
    "amqp-1": _over_amqp,
    "amqp-2": _over_amqp,
    "amqp-3": _over_amqp,
    "http-0": _over_http,
    "http-1": _receiving,
    "changer": _changing,
}


def plan(seed: int, client: str) -> Iterator[Step]:
    """The steps of a client, without end."""
    return CLIENTS[client](_Planner(seed, client))
