"""The operations of an entity's $management.

An operation is a coroutine that takes a request and returns the body of the answer, or None for an empty answer (204).
An exception becomes the status and condition of the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from oncebus.access import Operation
from oncebus.amqp import Array, Int, Long, Timestamp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Received
from oncebus.entities import BadRequest, OutOfRange, Subscription
from oncebus.servicebus.arguments import Arguments
from oncebus.servicebus.dispositions import own_properties
from oncebus.servicebus.errors import NOT_IMPLEMENTED, Refused, refusal_of_outcome
from oncebus.servicebus.front import Front
from oncebus.servicebus.messages import incoming_message, outgoing
from oncebus.servicebus.rules import described, rule_of
from oncebus.servicebus.session_receiver import SessionReceiver
from oncebus.servicebus.times import timestamp
from oncebus.store import Action, Mode, Outcome, SessionLock, SessionLockLost, Settlement

Body = dict[str, object]

_NO_TIME = 253_402_300_800_000_000
"""The end of the year 9999: clients send this time to list all sessions."""

_STATUSES = {
    "completed": Action.COMPLETE,
    "abandoned": Action.ABANDON,
    # The service's own spelling.
    "defered": Action.DEFER,
    "suspended": Action.DEAD_LETTER,
}
_RECEIVE_AND_DELETE = 0
_PEEKED_AT_ONCE = 20
_MOST_SKIPPED = 1_000_000


@dataclass(frozen=True)
class Asked:
    """One request: its entity and arguments. `holder` finds the client's link that holds a session."""

    front: Front
    address: Address
    given: Arguments
    holder: Callable[[str], SessionReceiver | None]

    def held(self, session: str) -> SessionReceiver:
        """Return the client's link that holds a session. Raises `SessionLockLost` if it has none."""
        found = self.holder(session)
        if found is None or found.lock is None:
            raise SessionLockLost(f"Session '{session}' is not held by a receiver of this connection.")
        return found

    def lock(self) -> SessionLock | None:
        """Return the lock of the session that the request names, or None if it names none."""
        session = self.given.optional_text("session-id")
        return None if session is None else self.held(session).lock

    def encoded(self, received: Received, *, is_peeked: bool = False) -> bytes:
        """Return the encoding of a message for an answer."""
        message = received.message
        return outgoing(received, self.front.path_of(message.source, message.entity), is_peeked=is_peeked)


# Messages of senders


async def schedule(asked: Asked) -> Body:
    """Schedule messages, each at the time in its annotations. Answers with their sequence numbers."""
    messages = []
    for each in asked.given.maps("messages"):
        payload = each.binary("message")
        if payload is None:
            raise BadRequest("The argument 'message' is missing.")
        messages.append(incoming_message(payload))
    numbers = await asked.front.broker.send(asked.address.path, messages)
    return {"sequence-numbers": Array(Long, numbers)}


async def cancel_scheduled(asked: Asked) -> Body:
    """Cancel scheduled messages."""
    numbers = asked.given.numbers("sequence-numbers")
    _check(await asked.front.broker.cancel_scheduled(asked.address.path, numbers))
    return {}


# Messages of receivers


async def peek(asked: Asked) -> Body | None:
    """Return messages without locking them."""
    limits = asked.front.limits
    start, session = (
        asked.given.number("from-sequence-number", least=-(1 << 63)),
        asked.given.optional_text("session-id"),
    )
    left = min(asked.given.number("message-count", least=1), limits.peeked)
    is_bodiless = asked.given.flag("omit-message-body")
    messages: list[dict[str, object]] = []
    size = 0
    # In portions, so that large bodies do not fill the memory: the client requests the rest again.
    while left and size < limits.peeked_bytes:
        wanted = min(left, _PEEKED_AT_ONCE)
        found = await asked.front.broker.peek(asked.address, start, wanted, session, limits.peeked_bytes - size)
        for each in found:
            shown = Received(each.message, b"") if is_bodiless else each
            messages.append({"message": asked.encoded(shown, is_peeked=True)})
            size += len(shown.body) + len(each.message.head)
        left -= len(found)
        # The store's byte limit counts bodies, so without bodies there is room for more.
        if not found or (len(found) < wanted and not is_bodiless):
            break
        start = found[-1].message.sequence + 1
    return {"messages": messages} if messages else None


async def receive_by_number(asked: Asked) -> Body:
    """Receive deferred messages by sequence number: all of them, or none."""
    numbers = list(dict.fromkeys(asked.given.numbers("sequence-numbers")))
    is_deleting = asked.given.number("receiver-settle-mode", otherwise=1) == _RECEIVE_AND_DELETE
    lock = asked.lock()
    broker, limits = asked.front.broker, asked.front.limits
    if len(numbers) > limits.deferred:
        raise OutOfRange(f"The request asks for {len(numbers)} messages, but the limit is {limits.deferred}.")

    async def receive(wanted: list[int]) -> list[Received]:
        return await broker.receive_deferred(
            asked.address, wanted, mode=Mode.PEEK_LOCK, session=lock, most_bytes=limits.deferred_bytes
        )

    found = await receive(numbers)
    more = await receive(numbers[len(found) :]) if len(found) < len(numbers) else []
    tokens = [each.message.token for each in (*found, *more) if each.message.token is not None]
    if len(found) < len(numbers):
        await broker.settle(asked.address, [Settlement(Action.RELEASE, token) for token in tokens], session=lock)
        if more:
            raise OutOfRange(f"The messages together exceed the limit of {limits.deferred_bytes} bytes.")
        _check([Outcome.MESSAGE_NOT_FOUND])
    if is_deleting:
        _check(
            await broker.settle(asked.address, [Settlement(Action.COMPLETE, token) for token in tokens], session=lock)
        )
        return {"messages": [{"message": asked.encoded(each)} for each in found]}
    return {
        "messages": [
            {"lock-token": UUID(bytes=token), "message": asked.encoded(each)}
            for token, each in zip(tokens, found, strict=True)
        ]
    }


async def update_disposition(asked: Asked) -> Body:
    """Settle messages by their lock tokens."""
    given = asked.given
    status = given.text("disposition-status")
    action = _STATUSES.get(status)
    if action is None:
        raise BadRequest(
            f"The argument 'disposition-status' has value '{status:.100}'. Not one of {', '.join(_STATUSES)}."
        )
    changed = given.any("properties-to-modify")
    if changed is not None and not isinstance(changed, dict):
        raise BadRequest(f"The argument 'properties-to-modify' has value {changed!r:.100}. Not a map.")
    reason = description = None
    if action is Action.DEAD_LETTER:
        reason, description = given.optional_text("deadletter-reason"), given.optional_text("deadletter-description")
    settlements = [
        Settlement(action, token, properties=own_properties(changed), reason=reason, description=description)
        for token in given.lock_tokens("lock-tokens")
    ]
    _check(await asked.front.broker.settle(asked.address, settlements, session=asked.lock()))
    return {}


async def renew_lock(asked: Asked) -> Body:
    """Renew the locks of messages."""
    answers = await asked.front.broker.renew_locks(asked.address, asked.given.lock_tokens("lock-tokens"))
    _check([answer for answer in answers if isinstance(answer, Outcome)])
    ends = [timestamp(answer) for answer in answers if not isinstance(answer, Outcome)]
    return {"expirations": Array(Timestamp, ends)}


async def delete_messages(asked: Asked) -> Body | None:
    """Delete the oldest messages that are not locked."""
    if asked.given.any("session-id") is not None:
        raise Refused(NOT_IMPLEMENTED, 501, "Deleting the messages of one session is not supported.")
    count = min(asked.given.number("message-count", least=1), asked.front.limits.deleted)
    before = asked.given.time("enqueued-time-utc")
    deleted = await asked.front.broker.delete_messages(asked.address, before, count)
    return {"message-count": Int(deleted)} if deleted else None


# Sessions


async def renew_session(asked: Asked) -> Body:
    """Renew the lock of a session."""
    lock = await asked.held(asked.given.text("session-id")).renew()
    return {"expiration": timestamp(lock.locked_until)}


async def get_state(asked: Asked) -> Body:
    """Return the state of a session."""
    lock = asked.held(asked.given.text("session-id")).lock
    assert lock is not None
    return {"session-state": await asked.front.broker.session_state(lock)}


async def set_state(asked: Asked) -> Body:
    """Set the state of a session."""
    lock = asked.held(asked.given.text("session-id")).lock
    assert lock is not None
    await asked.front.broker.set_session_state(lock, asked.given.binary("session-state"))
    return {}


async def list_sessions(asked: Asked) -> Body | None:
    """List the sessions with messages or state, or those whose state was set since a time."""
    skip, top = _page(asked)
    time = asked.given.time("last-updated-time")
    top = min(top, asked.front.limits.sessions)
    names = await asked.front.broker.sessions(
        asked.address, updated_since=None if time >= _NO_TIME else time, limit=skip + top
    )
    page = names[skip:]
    return {"skip": Int(skip + len(page)), "sessions-ids": Array(str, page)} if page else None


# Rules


async def add_rule(asked: Asked) -> Body:
    """Add a rule to a subscription."""
    owner = _subscription(asked)
    rule = rule_of(asked.given.text("rule-name"), asked.given.any("rule-description"))
    await asked.front.broker.change(lambda catalogue, now: catalogue.create_rule(owner.topic, owner.name, rule, now))
    return {}


async def remove_rule(asked: Asked) -> Body:
    """Remove a rule from a subscription."""
    owner, name = _subscription(asked), asked.given.text("rule-name")
    await asked.front.broker.change(lambda catalogue, _: catalogue.delete_rule(owner.topic, owner.name, name))
    return {}


async def list_rules(asked: Asked) -> Body | None:
    """List the rules of a subscription."""
    skip, top = _page(asked)
    rules = _subscription(asked).rules[skip : skip + min(top, asked.front.limits.rules)]
    return {"rules": [{"rule-description": described(rule)} for rule in rules]} if rules else None


class Does(NamedTuple):
    """An operation: the right that it needs, and the coroutine that runs it."""

    operation: Operation
    handler: Callable[[Asked], Awaitable[Body | None]]


OPERATIONS: dict[str, Does] = {
    f"com.microsoft:{name}": does
    for name, does in {
        "schedule-message": Does(Operation.SCHEDULE, schedule),
        "cancel-scheduled-message": Does(Operation.CANCEL_SCHEDULED, cancel_scheduled),
        "peek-message": Does(Operation.PEEK, peek),
        "receive-by-sequence-number": Does(Operation.RECEIVE_DEFERRED, receive_by_number),
        "update-disposition": Does(Operation.SETTLE, update_disposition),
        "renew-lock": Does(Operation.RENEW_LOCK, renew_lock),
        "batch-delete-messages": Does(Operation.DELETE_MESSAGES, delete_messages),
        "renew-session-lock": Does(Operation.RENEW_LOCK, renew_session),
        "get-session-state": Does(Operation.SESSION_STATE, get_state),
        "set-session-state": Does(Operation.SESSION_STATE, set_state),
        "get-message-sessions": Does(Operation.LIST_SESSIONS, list_sessions),
        "add-rule": Does(Operation.ADD_RULE, add_rule),
        "remove-rule": Does(Operation.REMOVE_RULE, remove_rule),
        "enumerate-rules": Does(Operation.READ_RULES, list_rules),
    }.items()
}


def _page(asked: Asked) -> tuple[int, int]:
    """Return how many results to skip, and how many to return."""
    skip = asked.given.number("skip", otherwise=0, most=_MOST_SKIPPED)
    return skip, asked.given.number("top", otherwise=100)


def _subscription(asked: Asked) -> Subscription:
    path = asked.address.path
    entity = asked.front.broker.catalogue.find(path)
    if not isinstance(entity, Subscription):
        raise BadRequest(f"Rules belong to subscriptions: '{path}' is not a subscription.")
    return entity


def _check(outcomes: Sequence[Outcome]) -> None:
    """Raise `Refused` for the first message that failed."""
    for outcome in outcomes:
        refusal = refusal_of_outcome(outcome)
        if refusal is not None:
            raise Refused(*refusal)
