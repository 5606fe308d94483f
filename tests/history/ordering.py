"""The rules of order: a message that is accepted earlier has a lower number, and is delivered earlier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .entities import DEAD_LETTERS, LOCK_SECONDS, RECREATED, SESSION
from .history import OK, UNKNOWN, Operation
from .model import SECOND, Attempt, Delivery, Model, partition_of
from .operations import HTTP

_HIDDEN_FOR = (LOCK_SECONDS + 6) * SECOND
"""The longest lock of a message for a receiver that never saw it: the lock duration, and a pause of the gateway."""


def numbered_out_of_order(model: Model) -> Iterator[str]:
    """If a send to an entity begins after another one was answered, it has a higher number."""
    lanes: dict[tuple[str, str, int, int], list[tuple[Attempt, int]]] = defaultdict(list)
    for uid, places in model.arrivals.items():
        attempt = model.attempts.get(uid)
        if attempt is None or attempt.due is not None:
            continue
        for place, numbers in places.items():
            number = min(numbers)
            lanes[place, attempt.sink.name, attempt.incarnation, partition_of(number)].append((attempt, number))
    for (place, _, _, _), lane in lanes.items():
        lane.sort(key=lambda each: (each[0].operation.invoked, each[0].operation.number, each[0].at))
        # The messages of a transaction that also settles may be numbered after its answer.
        answered = [each for each in lane if not each[0].operation.args.get("settles")]
        answered.sort(key=lambda each: each[0].operation.returned)
        at, highest = 0, (0, "")
        before: tuple[Attempt, int] | None = None
        for attempt, number in lane:
            while at < len(answered) and answered[at][0].operation.is_before(attempt.operation):
                highest = max(highest, (answered[at][1], answered[at][0].uid))
                at += 1
            if number < highest[0]:
                yield f"{place}: {attempt.uid} is number {number}, {highest[1]}, accepted before it, {highest[0]}"
            if before is not None and before[0].operation is attempt.operation and number < before[1]:
                yield f"{place}: {attempt.uid} is number {number}, {before[0].uid}, before it in a batch, {before[1]}"
            before = attempt, number


def delivered_out_of_order(model: Model) -> Iterator[str]:
    """No message is delivered while one with a lower number waits for its first delivery.

    Sessions have no exception. Elsewhere, a receiver that fails, or closes with credit left, may have held messages
    that it never showed. Those are excused for as long as that is possible.
    """
    hiding = _hiding(model)
    lanes: dict[tuple[str, str | None, int, int], list[Delivery]] = defaultdict(list)
    for (place, uid, _), deliveries in model.copies.items():
        attempt = model.attempts.get(uid)
        if attempt is None or place.endswith(DEAD_LETTERS) or deliveries[0].operation.args.get("deferred") is not None:
            continue
        session = deliveries[0].session if place == SESSION else None
        first = min(deliveries, key=lambda each: each.operation.invoked)
        lanes[place, session, attempt.incarnation, partition_of(first.number)].append(first)
    for (place, session, _, _), lane in lanes.items():
        if place == RECREATED:
            continue
        # Go through the numbers from the highest down, and keep the delivery above that returned earliest.
        lane.sort(key=lambda each: -each.number)
        overtaking: Delivery | None = None
        for delivery in lane:
            if (
                overtaking is not None
                and overtaking.operation.is_before(delivery.operation)
                and not (session is None and _is_excused(delivery, overtaking, hiding[place]))
            ):
                where = place if session is None else f"session {session}"
                yield (
                    f"{where}: {overtaking.uid}, number {overtaking.number} (op {overtaking.operation.number}), came "
                    f"before {delivery.uid}, number {delivery.number} (op {delivery.operation.number})"
                )
            if overtaking is None or delivery.operation.returned < overtaking.operation.returned:
                overtaking = delivery


def enqueued_time_steps_back(model: Model) -> Iterator[str]:
    """In the order of numbers, the enqueued times never go back.

    A resubmitted letter of a subscription is excused: it gets its number at once, before copies that were accepted
    earlier and are still on their way.
    """
    lanes: dict[tuple[str, int, int], list[Delivery]] = defaultdict(list)
    for (place, uid, _), deliveries in model.copies.items():
        attempt = model.attempts.get(uid)
        is_ahead = "/Subscriptions/" in place and bool(model.resubmits[place, uid])
        if attempt is not None and not place.endswith(DEAD_LETTERS) and not is_ahead:
            lanes[place, attempt.incarnation, partition_of(deliveries[0].number)].append(deliveries[0])
    for (place, _, _), lane in lanes.items():
        lane.sort(key=lambda each: each.number)
        newest: Delivery | None = None
        for delivery in lane:
            if newest is not None and delivery.latest < newest.earliest:
                yield f"{place}: number {delivery.number} at {delivery.latest}, {newest.number} at {newest.earliest}"
            if newest is None or delivery.earliest > newest.earliest:
                newest = delivery


def _hiding(model: Model) -> dict[str, list[Operation]]:
    """Return, by place, the receives that may have locked a message without showing it."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for receive in model.history.of("receive"):
        is_full = len(receive.result.get("messages", ())) == receive.args["most"]
        is_clean = receive.outcome == OK and (receive.args["via"] == HTTP or is_full)
        if receive.outcome == UNKNOWN or not is_clean:
            found[receive.args["place"]].append(receive)
    return found


def _is_excused(delivery: Delivery, overtaking: Delivery, hiding: list[Operation]) -> bool:
    """Return whether a receiver may have held a message while a later one was received."""
    return delivery.count > 0 or any(
        each.invoked < overtaking.operation.returned and each.ended + _HIDDEN_FOR > overtaking.operation.invoked
        for each in hiding
    )
