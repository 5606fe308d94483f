"""The plans of clients. Each is endless, and depends only on the seed and the client's name.

The broker influences the result of a step (which message arrives, whether an answer does), but not which steps come.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .entities import (
    BY_BODY,
    BY_PROPERTY,
    CHANGING,
    COLOURS,
    DEAD_LETTERS,
    DEALS,
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
RELEASE = "release"


@dataclass(frozen=True)
class Message:
    """One message to send. `uid` is its body and is unique. Messages that share an id are duplicates.

    A retry has a new uid, so that the history shows which attempt was delivered. `due` is in seconds from the moment
    of sending.
    """

    uid: str
    id: str
    colour: str
    session: str | None = None
    due: float | None = None


@dataclass(frozen=True)
class Send:
    """Send messages in one request. Retry with new uids as long as the outcome is unknown."""

    entity: str
    messages: tuple[Message, ...]
    via: str


@dataclass(frozen=True)
class Transact:
    """Send messages to a queue and complete some of its messages, in one transaction. Retry as `Send` does.

    Messages with a time are scheduled, which reserves their numbers. The `rival`, if any, is sent without the
    transaction after all of that, and answered before the discharge.
    `outside` is an outcome outside of the transaction for the messages that it completes, right before the discharge
    or right after it. `by_token` completes them by their lock tokens, with a session id.
    """

    entity: str
    messages: tuple[Message, ...]
    rival: Message | None
    settles: int
    by_token: bool
    outside: str | None
    is_settled: bool
    is_outside_first: bool
    commits: bool


@dataclass(frozen=True)
class Receive:
    """Receive messages and settle each with the action at its index. `session` is set for places with sessions."""

    place: str
    via: str
    actions: tuple[str, ...]
    session: str | None = None


@dataclass(frozen=True)
class Cancel:
    """Cancel one of the messages that this client has scheduled. `pick`, from 0 to 1, selects it."""

    pick: float


@dataclass(frozen=True)
class ReceiveDeferred:
    """Receive and complete one of the messages that this client has deferred."""

    pick: float


@dataclass(frozen=True)
class Resubmit:
    """Resubmit dead letters of a place, with the broker's own operation or by sending a copy."""

    place: str
    copies: bool


@dataclass(frozen=True)
class ChangeWindow:
    """Change the detection window."""

    entity: str
    window: str


@dataclass(frozen=True)
class Forget:
    """Make an entity forget an id."""

    entity: str
    id: str


@dataclass(frozen=True)
class ChangeRule:
    """Change a rule to select another colour."""

    place: str
    colour: str


@dataclass(frozen=True)
class Recreate:
    """Delete an entity and create it again. The new one remembers no ids."""

    entity: str


@dataclass(frozen=True)
class Pause:
    """Do nothing."""

    seconds: float


Step = (
    Send
    | Transact
    | Receive
    | Cancel
    | ReceiveDeferred
    | Resubmit
    | ChangeWindow
    | Forget
    | ChangeRule
    | Recreate
    | Pause
)

_SHARED = 200
_DEAD_LETTERED = tuple(place for place in PLACES if place not in (WINDOW, RECREATED))
_RECEIVED_BY_HTTP = (DIRECT, "target")
"""Only HTTP receives there. A request over HTTP hides no message, so the order is checked most strictly."""


class _Planner:
    """Generates the steps of one client."""

    def __init__(self, seed: int, client: str) -> None:
        self.chance = random.Random(f"{seed} {client}")
        self._client = client
        self._sent = 0
        self._ids: dict[str, list[str]] = {}

    def pause(self, longest: float) -> Pause:
        return Pause(round(self.chance.uniform(0, longest), 3))

    def messages(self, entity: str, count: int, *, may_wait: bool = True) -> tuple[Message, ...]:
        """Return messages to send. Most have new ids; some repeat an id of this client or one that all share."""
        sink, made = SINKS[entity], list[Message]()
        session = self.chance.choice(SESSIONS) if sink.has_sessions else None
        for _ in range(count):
            self._sent += 1
            uid = f"{self._client}.{self._sent}"
            ids = self._ids.setdefault(entity, [])
            draw, is_same = self.chance.random(), self.chance.random() < 0.5
            if sink.detection_key is not None and made and is_same:
                name = made[-1].id
            elif draw < 0.2 and ids:
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
        """Return one scheduled message."""
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
            plain = (DIRECT, DIRECT, PLAIN, SESSION, SESSION, FORWARDING, PASSING, NEWS, NEWS, DEALS)
            yield planner.send(AMQP, *plain, BY_PROPERTY, BY_BODY)
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
        yield planner.send(HTTP, DIRECT, DIRECT, PLAIN, SESSION, FORWARDING, PASSING, NEWS, DEALS, BY_PROPERTY, BY_BODY)
        # Slow enough that the others receive most of the messages.
        yield planner.pause(0.3)


def _receiving(planner: _Planner) -> Iterator[Step]:
    while True:
        yield planner.receive(HTTP, *_RECEIVED_BY_HTTP)
        yield planner.pause(0.02)


def _dealing(planner: _Planner) -> Iterator[Step]:
    chance = planner.chance
    while True:
        entity = chance.choice([DEALS, DEALS, DEALS, PLAIN])
        messages = planner.messages(entity, chance.choice([1, 2, 2, 3]), may_wait=False)
        if chance.random() < 0.7:
            messages = tuple(replace(each, id=messages[0].id) for each in messages)
        messages = tuple(
            replace(each, due=round(chance.uniform(1.0, 6.0), 1)) if chance.random() < 0.5 else each
            for each in messages
        )
        [rival] = planner.messages(entity, 1, may_wait=False)
        yield Transact(
            entity,
            messages,
            replace(rival, id=messages[-1].id) if chance.random() < 0.5 else None,
            chance.choice([0, 0, 1, 3]),
            chance.random() < 0.3,
            chance.choice([None, RELEASE, RELEASE, ABANDON]),
            chance.random() < 0.5,
            chance.random() < 0.7,
            chance.random() < 0.85,
        )
        if chance.random() < 0.2:
            yield Cancel(1.0)
        yield planner.pause(0.2)


def _changing(planner: _Planner) -> Iterator[Step]:
    """Yield the steps of the client that changes a window and a rule, and that deletes and creates a queue.

    No other client sends to these queues, so it knows the window and the incarnation of each send.
    """
    chance = planner.chance
    windows = [window for window, seconds in WINDOWS.items() if seconds < 100]
    names = [f"again-{number}" for number in range(12)]
    for number in range(1 << 60):
        draw = chance.random()
        if draw < 0.45:
            # Few ids, so that each is repeated both before and after the end of its window.
            sent = tuple(
                Message(f"w.{number}.{at}", chance.choice(names), chance.choice(COLOURS))
                for at in range(chance.choice([1, 1, 2]))
            )
            yield Send(WINDOW, sent, chance.choice([AMQP, HTTP]))
        elif draw < 0.55:
            yield Forget(WINDOW, chance.choice(names))
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
    "dealer": _dealing,
    "http-0": _over_http,
    "http-1": _receiving,
    "changer": _changing,
}


def plan(seed: int, client: str) -> Iterator[Step]:
    """Return the steps of a client, as an endless iterator."""
    return CLIENTS[client](_Planner(seed, client))
