"""The rules that every history must obey. Each rule is a pure function of the model and lists its violations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .detection import dropped_for_a_later_one, dropped_wrongly, duplicate_delivered, remembers_the_forgotten
from .entities import DEAD_LETTERS, LOCK_SECONDS, NEWS, PLAIN, RECREATED, SINKS
from .history import FAILED, NEVER, OK, UNKNOWN, History
from .model import MILLISECOND, SECOND, Attempt, Model
from .operations import COMPLETE, DEAD_LETTER, DEFER
from .ordering import delivered_out_of_order, enqueued_time_steps_back, numbered_out_of_order


class Violation(NamedTuple):
    """A broken rule, and the evidence."""

    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


Rule = Callable[[Model], Iterator[str]]

_LOST = re.compile("lock-lost|lock supplied|session lock")


def check(history: History) -> list[Violation]:
    """Return all violations in a history."""
    model = Model(history)
    return [Violation(rule.__name__.replace("_", " "), what) for rule in RULES for what in rule(model)]


# Messages


def lost(model: Model) -> Iterator[str]:
    """Every accepted message is delivered, or was cancelled, or is recorded as a duplicate of a message that was."""
    dropped = _dropped(model)
    for (entity, _, name), attempts in model.by_key.items():
        if model.is_gone(attempts[0]):
            continue
        sure = [attempt.uid for attempt in attempts if attempt.is_sure]
        accepted = [attempt.uid for attempt in attempts if model.may_be_accepted(attempt)]
        missing = [uid for uid in sure if uid not in accepted]
        if len(missing) > dropped[entity, name]:
            yield f"{name} of {entity}: accepted {sure}, seen {accepted}, {dropped[entity, name]} drops"
        elif sure and not accepted:
            yield f"{name} of {entity}: accepted {sure}, all dropped"


def invented(model: Model) -> Iterator[str]:
    """No message is delivered that was not sent or was refused, and no more are dropped than were sent."""
    for uid in model.arrivals:
        if uid not in model.attempts:
            yield f"{uid} was never sent"
        elif not model.attempts[uid].is_possible:
            yield f"{uid} was refused, and delivered"
        else:
            wrong = set(model.arrivals[uid]) - set(model.attempts[uid].sink.arrives)
            if wrong:
                yield f"{uid} was sent to {model.attempts[uid].sink.name}, and came out of {wrong}"
    dropped = _dropped(model)
    for (entity, _, name), attempts in model.by_key.items():
        possible = sum(attempt.is_possible for attempt in attempts if not model.is_gone(attempt) or not attempt.is_sure)
        arrived = sum(model.has_arrived(attempt) for attempt in attempts if not model.is_gone(attempt))
        if not model.is_gone(attempts[0]) and arrived + dropped[entity, name] > possible + _from_before(
            model, attempts
        ):
            yield f"{name} of {entity}: sent {possible} times, {arrived} delivered, {dropped[entity, name]} dropped"


def doubled(model: Model) -> Iterator[str]:
    """A message has one copy in a place, plus one for each of its dead letters that was resubmitted."""
    for uid, places in model.arrivals.items():
        for place, numbers in places.items():
            if len(numbers) > 1 + len(model.resubmitted(place, uid)):
                yield f"{uid} in {place} under {numbers}"


def came_back(model: Model) -> Iterator[str]:
    """An answered settlement holds: a completed or dead-lettered message is not delivered there again."""
    for copy, deliveries in model.copies.items():
        place, uid, number = copy
        done = [each for each in model.settlements[copy] if each.outcome == OK]
        for settle in done:
            action = settle.args["action"]
            for delivery in deliveries:
                by_number = delivery.operation.args.get("deferred") is not None
                is_final = action in (COMPLETE, DEAD_LETTER) or (action == DEFER and not by_number)
                if is_final and settle.is_before(delivery.operation):
                    yield f"{uid}, number {number} of {place}, after {action} was answered (op {settle.number})"
        finals = [each for each in done if each.args["action"] in (COMPLETE, DEAD_LETTER)]
        if any(one.is_before(other) for one in finals for other in finals):
            yield f"{uid}, number {number} of {place} was settled twice"


def vanished(model: Model) -> Iterator[str]:
    """A delivered message stays until it is settled, and a dead letter stays until it is resubmitted.

    As many resubmitted letters are delivered again as the broker reports, each with a new number.
    """
    for place, uid, number in model.copies:
        attempt = model.attempts.get(uid)
        if attempt is not None and model.is_gone(attempt):
            continue
        possible = [each for each in model.settlements[place, uid, number] if each.outcome != FAILED]
        actions = {each.args["action"] for each in possible}
        if COMPLETE in actions:
            continue
        if DEAD_LETTER in actions:
            letters = place + DEAD_LETTERS
            if (letters, uid, number) not in model.copies and not model.is_back(place, uid, number):
                yield f"{uid}, number {number} of {place} was dead-lettered, but is missing"
        elif not (place.endswith(DEAD_LETTERS) and model.is_back(place.removesuffix(DEAD_LETTERS), uid, number)):
            yield f"{uid}, number {number} of {place} was delivered, not settled, and is gone"
    for resubmit in model.history.of("resubmit"):
        place, numbers, uids = (resubmit.args[name] for name in ("place", "numbers", "uids"))
        back = [uid for uid, number in zip(uids, numbers, strict=True) if model.is_back(place, uid, number)]
        if resubmit.outcome == OK and len(back) < resubmit.result["done"]:
            yield f"{resubmit.result['done']} of {uids} of {place} were resubmitted (op {resubmit.number}), {back} came"


def lock_lost_in_a_transaction(model: Model) -> Iterator[str]:
    """As long as a lock must hold, no transaction fails for it, whatever the client does outside of the transaction."""
    ahead = [each for each in model.history.of("fault") if each.args["fault"] == "clock ahead"]
    for operation in model.history.of("send", "settle"):
        since = operation.args.get("since")
        if since is None or operation.outcome != FAILED or not _LOST.search(operation.error):
            continue
        expired = any(each.invoked < operation.ended and each.ended > since for each in ahead)
        if not expired and operation.ended - since < LOCK_SECONDS * SECOND:
            yield f"op {operation.number} ({operation.kind}): {operation.error}"


def batch_torn(model: Model) -> Iterator[str]:
    """A batch is accepted completely or not at all."""
    for send in model.history.of("send"):
        if send.args["entity"] == PLAIN and send.outcome == UNKNOWN:
            arrived = [each["uid"] in model.arrivals for each in send.args["messages"]]
            if any(arrived) and not all(arrived):
                yield f"op {send.number}: {[each['uid'] for each in send.args['messages']]} arrived {arrived}"


# Schedules, routes, entities


def wrong_time(model: Model) -> Iterator[str]:
    """A scheduled message is delivered neither before its time nor after it was cancelled."""
    faults = model.history.of("fault")
    # After the broker's clock was set ahead, it no longer matches ours. The other clock faults do not matter here: even
    # then, scheduled messages wait as long as they should.
    ours = min((each.invoked for each in faults if each.args["fault"] == "clock ahead"), default=NEVER)
    for delivery in model.deliveries:
        attempt = model.attempts.get(delivery.uid)
        if attempt is None:
            continue
        if model.was_cancelled(attempt) == OK:
            yield f"{attempt.uid} was cancelled, and delivered"
        received = delivery.operation.ended
        if attempt.due is None or received > ours:
            continue
        if delivery.latest < attempt.due - MILLISECOND:
            yield f"{attempt.uid} was enqueued {attempt.due - delivery.latest} µs before its time"
        if model.history.began + received < attempt.due - 2 * MILLISECOND:
            yield f"{attempt.uid} was delivered before its time"


def routed_wrongly(model: Model) -> Iterator[str]:
    """Each subscription gets the messages that its rule selects, and no others."""
    for attempt in model.attempts.values():
        if attempt.sink.name != NEWS or not model.has_arrived(attempt):
            continue
        for place, wanted in model.routes(attempt).items():
            has_come = place in model.arrivals[attempt.uid]
            if wanted is not None and wanted != has_come:
                yield f"{attempt.uid} ({attempt.colour}) in {place}: {has_come}"


def remembers_the_deleted(model: Model) -> Iterator[str]:
    """An entity that was deleted and created again contains nothing from before."""
    for delete in model.history.of("delete"):
        for delivery in model.deliveries:
            attempt = model.attempts.get(delivery.uid)
            if attempt is None or attempt.sink.name != RECREATED or not attempt.is_sure or delete.outcome != OK:
                continue
            if attempt.incarnation < delete.args["incarnation"] and delete.is_before(delivery.operation):
                yield f"{attempt.uid} of incarnation {attempt.incarnation} after {delete.args['incarnation']} was made"


# Counts


def left(model: Model) -> Iterator[str]:
    """At the end all messages are received: none remain anywhere."""
    for entity, states in model.end.result["held"].items():
        yield f"{entity}: {states}"


def miscounted(model: Model) -> Iterator[str]:
    """The broker's own counters agree with the history."""
    metrics = model.end.result["metrics"]
    seen: dict[str, set[str]] = defaultdict(set)
    for uid, places in model.arrivals.items():
        attempt = model.attempts.get(uid)
        for place in places:
            if attempt is not None and not model.is_gone(attempt):
                seen[place].add(uid)
    for name, values in metrics.items():
        expected: dict[str, tuple[int, int]] = dict.fromkeys(("unrouted", "quarantined", "discarded"), (0, 0))
        if name in SINKS:
            expected |= _counts_of_sink(model, name)
        elif name in seen:
            expected["new"] = (len(seen[name]), len(seen[name]))
        expected["dead_lettered"] = _settled(model, name, DEAD_LETTER)
        expected["completed"] = _settled(model, name, COMPLETE)
        for counter, (least, most) in expected.items():
            if counter in values and not least <= values[counter] <= most:
                yield f"{counter} of {name} is {values[counter]}, not {least} to {most}"


def _counts_of_sink(model: Model, name: str) -> dict[str, tuple[int, int]]:
    attempts = [each for each in model.attempts.values() if each.sink.name == name]
    here = [each for each in attempts if not model.is_gone(each)]
    # An unanswered send may have reached the next incarnation of the entity.
    late = sum(model.is_gone(each) and each.operation.outcome == UNKNOWN for each in attempts)
    sure = sum(each.is_sure for each in here)
    possible = sum(each.is_possible for each in here) + late
    accepted = sum(model.has_arrived(each) or model.was_cancelled(each) == OK for each in here)
    unseen = sum(model.was_cancelled(each) == UNKNOWN and not model.has_arrived(each) for each in here)
    drops = sum(drop.entity == name for drop in model.drops)
    least, most = accepted, accepted + unseen + late
    return {"new": (max(least, sure - drops), min(most, possible)), "duplicates": (drops, drops)}


def _settled(model: Model, name: str, action: str) -> tuple[int, int]:
    settles = [
        each
        for each in model.history.of("settle")
        if each.args["place"] == name and each.args["action"] == action and each.outcome != FAILED
    ]
    if name == RECREATED:
        gone = [each for each in settles if model.is_gone(model.attempts[each.args["uid"]])]
        settles = [each for each in settles if each not in gone]
    return sum(each.outcome == OK for each in settles), len(settles)


def internal_errors(model: Model) -> Iterator[str]:
    """No request gets an internal error of the broker."""
    for operation in model.history.operations:
        if "unable to process the request" in operation.error:
            yield f"op {operation.number} ({operation.kind} {dict(operation.args)}): {operation.error}"


# Shared by several rules


def _dropped(model: Model) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = defaultdict(int)
    for drop in model.drops:
        found[drop.entity, drop.id] += 1
    return found


def _from_before(model: Model, attempts: list[Attempt]) -> int:
    """Return how many sends to other incarnations may have reached this one, because their outcome is unknown."""
    entity, _, name = attempts[0].key
    return sum(
        each.operation.outcome == UNKNOWN
        for key, others in model.by_key.items()
        if key[0] == entity and key[2] == name and key != attempts[0].key
        for each in others
    )


RULES: tuple[Rule, ...] = (
    lost,
    invented,
    doubled,
    came_back,
    vanished,
    lock_lost_in_a_transaction,
    batch_torn,
    duplicate_delivered,
    dropped_wrongly,
    dropped_for_a_later_one,
    remembers_the_forgotten,
    wrong_time,
    routed_wrongly,
    remembers_the_deleted,
    numbered_out_of_order,
    delivered_out_of_order,
    enqueued_time_steps_back,
    left,
    miscounted,
    internal_errors,
)
