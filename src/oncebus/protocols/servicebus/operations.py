"""The operations of an entity's $management.

An operation is a coroutine that takes a request and returns the body of the answer, or None for an empty answer (204).
An exception becomes the status and condition of the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from oncebus.amqp.types import Array, Int, Long, Timestamp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.broker.transactions import Work
from oncebus.engine.store import Action, Mode, Outcome, SessionLock, SessionLockLost, Settlement, SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Entity, OutOfRange, Queue, Subscription
from oncebus.model.entities.descriptions import rules_by_name
from oncebus.protocols.servicebus.arguments import RequestArguments
from oncebus.protocols.servicebus.dispositions import own_properties
from oncebus.protocols.servicebus.errors import MESSAGE_NOT_FOUND, AmqpRefused, refusal_of_outcome
from oncebus.protocols.servicebus.front import ServiceBusFront
from oncebus.protocols.servicebus.messages import incoming_message, timestamp, wants_original
from oncebus.protocols.servicebus.rules import describe_rule, rule_of
from oncebus.protocols.servicebus.session_receiver import SessionReceiver

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
class Invocation:
    """One request: its entity and arguments. `holder` finds the client's link that holds a session.

    Without a session, `holder` finds the session's link that the request names, if any.
    `acting` does what can be a part of a transaction: the broker, at once, or the transaction, with its commit.
    """

    front: ServiceBusFront
    address: Address
    given: RequestArguments
    holder: Callable[[str | None], SessionReceiver | None]
    acting: Broker | Work

    def require_holder(self, session: str) -> SessionReceiver:
        """Return the client's link that holds a session. Raises `SessionLockLost` if it has none."""
        found = self.holder(session)
        if found is None or found.lock is None:
            raise SessionLockLost(f"Session '{session}' is not held by a receiver of this connection.")
        return found

    def lock(self) -> SessionLock | None:
        """Return the lock of the session that the request names, itself or by its link, or None if it names none.

        Without sessions, a session id has no meaning: Java sends that of the message, whatever the entity.
        """
        session = self.given.optional_text("session-id")
        if session is not None and self.has_sessions:
            return self.require_holder(session).lock
        found = self.holder(None)
        return None if found is None else found.lock

    def encode(self, received: Received, *, is_peeked: bool = False) -> bytes:
        """Return the encoding of a message for an answer."""
        return self.front.encode(received, self._entity, is_peeked=is_peeked)

    @property
    def has_sessions(self) -> bool:
        """Return whether receivers lock the sessions of the address. Dead letters have none."""
        entity = self._entity
        is_main = self.address.sub_queue is SubQueue.MAIN
        return is_main and isinstance(entity, Queue | Subscription) and entity.requires_session

    @cached_property
    def _entity(self) -> Entity | None:
        return self.front.broker.catalogue.find(self.address.path)


# Messages of senders


async def schedule(call: Invocation) -> Body:
    """Schedule messages, each at the time in its annotations. Answers with their sequence numbers.

    For a duplicate that asks for it, answers with the number of its original.
    """
    messages = []
    for each in call.given.maps("messages"):
        payload = each.binary("message")
        if payload is None:
            raise BadRequest("The argument 'message' is missing.")
        messages.append(incoming_message(payload))
    asking = [at for at, message in enumerate(messages) if wants_original(message.head)]
    numbers = await call.acting.schedule(call.address.path, messages, asking)
    return {"sequence-numbers": Array(Long, numbers)}


async def cancel_scheduled(call: Invocation) -> Body:
    """Cancel scheduled messages."""
    numbers = call.given.numbers("sequence-numbers")
    _check(await call.acting.cancel_scheduled(call.address.path, numbers))
    return {}


# Messages of receivers


async def peek(call: Invocation) -> Body | None:
    """Return messages without locking them."""
    limits = call.front.limits
    start, session = (
        call.given.number("from-sequence-number", least=-(1 << 63)),
        call.given.optional_text("session-id"),
    )
    left = min(call.given.number("message-count", least=1), limits.peeked)
    is_bodiless = call.given.flag("omit-message-body")
    messages: list[dict[str, object]] = []
    size = 0
    # In portions, so that large bodies do not fill the memory: the client requests the rest again.
    while left and size < limits.peeked_bytes:
        wanted = min(left, _PEEKED_AT_ONCE)
        found = await call.front.broker.peek(call.address, start, wanted, session, limits.peeked_bytes - size)
        for each in found:
            shown = Received(each.message, b"") if is_bodiless else each
            messages.append({"message": call.encode(shown, is_peeked=True)})
            size += len(shown.body) + len(each.message.head)
        left -= len(found)
        # The store's byte limit counts bodies, so without bodies there is room for more.
        if not found or (len(found) < wanted and not is_bodiless):
            break
        start = found[-1].message.sequence + 1
    return {"messages": messages} if messages else None


async def receive_by_number(call: Invocation) -> Body:
    """Receive deferred messages by sequence number: all of them, or none."""
    numbers = list(dict.fromkeys(call.given.numbers("sequence-numbers")))
    is_deleting = call.given.number("receiver-settle-mode", otherwise=1) == _RECEIVE_AND_DELETE
    lock = call.lock()
    broker, limits = call.front.broker, call.front.limits
    if len(numbers) > limits.deferred:
        raise OutOfRange(f"The request asks for {len(numbers)} messages, but the limit is {limits.deferred}.")

    async def receive(wanted: list[int]) -> list[Received]:
        return await broker.receive_deferred(
            call.address, wanted, mode=Mode.PEEK_LOCK, session=lock, most_bytes=limits.deferred_bytes
        )

    found = await receive(numbers)
    more = await receive(numbers[len(found) :]) if len(found) < len(numbers) else []
    tokens = [each.message.token for each in (*found, *more) if each.message.token is not None]
    if len(found) < len(numbers):
        await broker.settle(call.address, [Settlement(Action.RELEASE, token) for token in tokens], session=lock)
        if more:
            raise OutOfRange(f"The messages together exceed the limit of {limits.deferred_bytes} bytes.")
        _check([Outcome.MESSAGE_NOT_FOUND])
    if is_deleting:
        _check(
            await broker.settle(call.address, [Settlement(Action.COMPLETE, token) for token in tokens], session=lock)
        )
        return {"messages": [{"message": call.encode(each)} for each in found]}
    return {
        "messages": [
            {"lock-token": UUID(bytes=token), "message": call.encode(each)}
            for token, each in zip(tokens, found, strict=True)
        ]
    }


async def update_disposition(call: Invocation) -> Body:
    """Settle messages by their lock tokens."""
    given = call.given
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
    _check(await call.acting.settle(call.address, settlements, session=call.lock()))
    return {}


async def renew_lock(call: Invocation) -> Body:
    """Renew the locks of messages."""
    answers = await call.front.broker.renew_locks(call.address, call.given.lock_tokens("lock-tokens"))
    _check([answer for answer in answers if isinstance(answer, Outcome)])
    ends = [timestamp(answer) for answer in answers if not isinstance(answer, Outcome)]
    return {"expirations": Array(Timestamp, ends)}


async def delete_messages(call: Invocation) -> Body:
    """Delete the oldest messages that are not locked: of a session that the client holds, or of the whole entity.

    If there are none, the answer is 204 with a condition.
    """
    named = call.given.optional_text("session-id")
    # Never ignore a session id here: without it, the request is about the whole entity.
    lock = call.lock() if named is None else call.require_holder(named).lock
    count = min(call.given.number("message-count", least=1), call.front.limits.deleted)
    before = call.given.time("enqueued-time-utc")
    session = None if lock is None else lock.session
    deleted = await call.front.broker.delete_messages(call.address, before, count, session)
    if not deleted:
        raise AmqpRefused(MESSAGE_NOT_FOUND, 204, "There are no messages to delete.")
    return {"message-count": Int(deleted)}


# Sessions


async def renew_session(call: Invocation) -> Body:
    """Renew the lock of a session."""
    lock = await call.require_holder(call.given.text("session-id")).renew()
    return {"expiration": timestamp(lock.locked_until)}


async def get_state(call: Invocation) -> Body:
    """Return the state of a session."""
    lock = call.require_holder(call.given.text("session-id")).lock
    assert lock is not None
    return {"session-state": await call.front.broker.session_state(lock)}


async def set_state(call: Invocation) -> Body:
    """Set the state of a session."""
    lock = call.require_holder(call.given.text("session-id")).lock
    assert lock is not None
    await call.acting.set_session_state(lock, call.given.binary("session-state") or None)
    return {}


async def list_sessions(call: Invocation) -> Body | None:
    """List the sessions that have messages or state, or those whose state was set after a given time."""
    skip, top = _page(call)
    time = call.given.time("last-updated-time")
    top = min(top, call.front.limits.sessions)
    names = await call.front.broker.sessions(
        call.address, updated_since=None if time >= _NO_TIME else time, limit=skip + top
    )
    page = names[skip:]
    return {"skip": Int(skip + len(page)), "sessions-ids": Array(str, page)} if page else None


# Rules


async def add_rule(call: Invocation) -> Body:
    """Add a rule to a subscription."""
    owner = _subscription(call)
    rule = rule_of(call.given.text("rule-name"), call.given.any("rule-description"))
    await call.front.broker.change(lambda catalogue, now: catalogue.create_rule(owner.topic, owner.name, rule, now))
    return {}


async def remove_rule(call: Invocation) -> Body:
    """Remove a rule from a subscription."""
    owner, name = _subscription(call), call.given.text("rule-name")
    await call.front.broker.change(lambda catalogue, _: catalogue.delete_rule(owner.topic, owner.name, name))
    return {}


async def list_rules(call: Invocation) -> Body | None:
    """List the rules of a subscription by name."""
    skip, top = _page(call)
    rules = rules_by_name(_subscription(call))[skip : skip + min(top, call.front.limits.rules)]
    return {"rules": [{"rule-description": describe_rule(rule)} for rule in rules]} if rules else None


class Does(NamedTuple):
    """An operation: the right that it needs, the coroutine that runs it, and whether it takes part in a transaction.

    Clients send all requests of a transaction with its id. Those that do not take part run at once.
    """

    operation: Operation
    handler: Callable[[Invocation], Awaitable[Body | None]]
    takes_part: bool = False


OPERATIONS: dict[str, Does] = {
    f"com.microsoft:{name}": does
    for name, does in {
        "schedule-message": Does(Operation.SCHEDULE, schedule, takes_part=True),
        "cancel-scheduled-message": Does(Operation.CANCEL_SCHEDULED, cancel_scheduled, takes_part=True),
        "peek-message": Does(Operation.PEEK, peek),
        "receive-by-sequence-number": Does(Operation.RECEIVE_DEFERRED, receive_by_number),
        "update-disposition": Does(Operation.SETTLE, update_disposition, takes_part=True),
        "renew-lock": Does(Operation.RENEW_LOCK, renew_lock),
        "batch-delete-messages": Does(Operation.DELETE_MESSAGES, delete_messages),
        "renew-session-lock": Does(Operation.RENEW_LOCK, renew_session),
        "get-session-state": Does(Operation.SESSION_STATE, get_state),
        "set-session-state": Does(Operation.SESSION_STATE, set_state, takes_part=True),
        "get-message-sessions": Does(Operation.LIST_SESSIONS, list_sessions),
        "add-rule": Does(Operation.ADD_RULE, add_rule),
        "remove-rule": Does(Operation.REMOVE_RULE, remove_rule),
        "enumerate-rules": Does(Operation.READ_RULES, list_rules),
    }.items()
}


def _page(call: Invocation) -> tuple[int, int]:
    """Return how many results to skip, and how many to return."""
    skip = call.given.number("skip", otherwise=0, most=_MOST_SKIPPED)
    return skip, call.given.number("top", otherwise=100)


def _subscription(call: Invocation) -> Subscription:
    path = call.address.path
    entity = call.front.broker.catalogue.find(path)
    if not isinstance(entity, Subscription):
        raise BadRequest(f"Rules belong to subscriptions: '{path}' is not a subscription.")
    return entity


def _check(outcomes: Sequence[Outcome]) -> None:
    """Raise `AmqpRefused` for the first message that failed."""
    for outcome in outcomes:
        refusal = refusal_of_outcome(outcome)
        if refusal is not None:
            raise AmqpRefused(*refusal)
