"""The rules of duplicate detection: no duplicate is delivered, and nothing else is dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .entities import RECREATED, SINKS
from .history import OK, Operation
from .model import MILLISECOND, Attempt, Model, partition_of


def duplicate_delivered(model: Model) -> Iterator[str]:
    """Of two messages with the same id, none is accepted less than a window after the other.

    Unless the id may have been forgotten in between.
    """
    for (entity, _, name), attempts in model.by_key.items():
        accepted = [each for each in attempts if model.has_arrived(each) or model.was_cancelled(each) == OK]
        for at, one in enumerate(accepted):
            for other in accepted[at + 1 :]:
                shortest = min(model.windows(one) + model.windows(other))
                apart = _apart(model, one, other)
                forgets = model.forgets[entity, name]
                if any(_may_separate(forget, one.operation, other.operation) for forget in forgets):
                    continue
                if apart is None or apart + MILLISECOND < shortest:
                    yield f"{name} of {entity}: {one.uid} and {other.uid}, {apart} µs apart"


def dropped_wrongly(model: Model) -> Iterator[str]:
    """Each drop names an accepted message with the same id, less than a window before.

    If the two had different windows, the shorter one counts.
    """
    attempts: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    numbered: dict[str, list[tuple[Attempt, int]]] = defaultdict(list)
    """Each attempt with its first number. A resubmitted message gets further numbers."""
    for attempt in model.attempts.values():
        if not model.is_gone(attempt) or not attempt.is_sure:
            attempts[attempt.sink.name, attempt.id].append(attempt)
            # A transaction reserves numbers before it takes effect.
            if (numbers := _numbers(model, attempt)) and "since" not in attempt.operation.args:
                numbered[attempt.sink.name].append((attempt, min(numbers)))
    for drop in model.drops:
        if drop.entity not in SINKS:
            yield f"{drop.id} was forwarded to {drop.entity} twice"
            continue
        tried = attempts[drop.entity, drop.id]
        # A cancelled or forwarded message is never delivered with the number that it was accepted with.
        hidden = [each for each in tried if model.may_be_accepted(each) and not _numbers(model, each)]
        originals = [each for each in tried if drop.original in _numbers(model, each)] or hidden
        if not originals:
            known = sorted(number for each in tried for number in _numbers(model, each))
            yield f"{drop.id} of {drop.entity}: its original is number {drop.original}, the id was {known}"
        dropped = [each for each in tried if _may_be_dropped(model, each, drop.number, numbered[drop.entity])]
        longest = min(
            max((window for each in some for window in model.windows(each)), default=0)
            for some in (originals or tried, dropped or tried)
        )
        if drop.time - drop.original_time >= longest:
            yield f"{drop.id} of {drop.entity}: {drop.time - drop.original_time} µs after its original"


def remembers_the_forgotten(model: Model) -> Iterator[str]:
    """No message is dropped for an original from before a forget of its id."""
    for drop in model.drops:
        for forget in model.forgets[drop.entity, drop.id]:
            number = forget.result.get("number")
            if number is not None and drop.original < number < drop.number:
                yield f"{drop.id} of {drop.entity}: {drop.number} for {drop.original}, forgotten at {number}"


def dropped_for_a_later_one(model: Model) -> Iterator[str]:
    """A message is dropped only for one that may be before it: in the inbox, in a batch or in a transaction."""
    for (entity, _, name), attempts in model.by_key.items():
        # A send of an unknown outcome may have reached another incarnation.
        if not attempts[0].sink.detects or entity == RECREATED:
            continue
        accepted = [each for each in attempts if model.may_be_accepted(each)]
        for attempt in attempts:
            if attempt.is_sure and accepted and all(attempt.is_before(each) for each in accepted):
                # It is not among them: nothing is before itself.
                yield f"{name} of {entity}: {attempt.uid}, although {[each.uid for each in accepted]} came after it"


def _may_separate(forget: Operation, one: Operation, other: Operation) -> bool:
    """Return whether a forget may have taken effect between two sends, in either order."""
    return any(
        not forget.is_before(first) and not second.is_before(forget) for first, second in ((one, other), (other, one))
    )


def _may_be_dropped(model: Model, attempt: Attempt, number: int, numbered: list[tuple[Attempt, int]]) -> bool:
    """Return whether an attempt may be the one dropped with this number.

    The number must lie between those of earlier and later sends."""
    if not attempt.is_possible or model.has_arrived(attempt) or model.was_cancelled(attempt) == OK:
        return False
    if attempt.number is not None:
        return attempt.number == number
    return not any(
        (other.operation.is_before(attempt.operation) and known > number)
        or (attempt.operation.is_before(other.operation) and known < number)
        for other, known in numbered
        if partition_of(known) == partition_of(number)
    )


def _numbers(model: Model, attempt: Attempt) -> set[int]:
    """Return the numbers with which the entity may have accepted an attempt."""
    found: set[int | None] = {attempt.number}
    if attempt.due is None:
        for delivery in model.deliveries_of(attempt.uid):
            if attempt.sink.subscriptions and delivery.place.startswith(attempt.sink.name):
                found.add(delivery.origin)
            elif delivery.place == attempt.sink.name:
                found.add(delivery.number)
    return {number for number in found if number is not None}


def _apart(model: Model, one: Attempt, other: Attempt) -> int | None:
    """Return the longest possible time between the acceptance of two attempts, in microseconds; None if unknown."""
    if one.due is not None or other.due is not None:
        return None
    first, second = (
        [each for each in model.deliveries_of(attempt.uid) if not model.resubmits[each.place, each.uid]]
        for attempt in (one, other)
    )
    if not first or not second:
        return None
    # All deliveries report the same time, some with more precision.
    late = [min(each.latest for each in some) for some in (first, second)]
    early = [max(each.earliest for each in some) for some in (first, second)]
    return max(late[0] - early[1], late[1] - early[0])
