"""Translates the outcomes of AMQP to the settlements of the broker.

accepted                            complete
modified                            abandon: the attempt counts, whatever its flags say
modified, undeliverable here        defer
rejected                            dead-letter, for the reasons in the error's info
released                            put back: the attempt does not count
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncebus.amqp.conditions import NOT_IMPLEMENTED
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, ReceivedState, Rejected, Released
from oncebus.broker.sending import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from oncebus.engine.store import Action, Settlement
from oncebus.protocols.servicebus.errors import AmqpRefused

DEAD_LETTER = "com.microsoft:dead-letter"


def settlement_of(token: bytes, state: DeliveryState | None, *, is_settled: bool) -> Settlement | None:
    """Return the settlement for an outcome of the message with this lock token; None if the outcome is not final.

    Raises `AmqpRefused` for an unknown outcome.
    """
    match state:
        case Accepted():
            return Settlement(Action.COMPLETE, token)
        case Modified():
            action = Action.DEFER if state.undeliverable_here else Action.ABANDON
            return Settlement(action, token, properties=own_properties(state.message_annotations))
        case Rejected():
            return _dead_letter(token, state.error)
        case Released():
            return Settlement(Action.RELEASE, token)
        case ReceivedState() | None:
            # A client that settles without an outcome has not decided: release the message.
            return Settlement(Action.RELEASE, token) if is_settled else None
    raise AmqpRefused(NOT_IMPLEMENTED, 501, f"The outcome {state!r:.100} is not supported.")


def settlements_of(tokens: Iterable[bytes], state: DeliveryState | None, *, is_settled: bool) -> list[Settlement]:
    """Return the settlements for one outcome of several messages; none if it is not final. Raises `AmqpRefused`."""
    if isinstance(state, Accepted):
        return [Settlement(Action.COMPLETE, token) for token in tokens]
    found = [settlement_of(token, state, is_settled=is_settled) for token in tokens]
    return [settlement for settlement in found if settlement is not None]


def answer_to(state: DeliveryState | None) -> DeliveryState | None:
    """Return the outcome that confirms a settlement to the client: the same, without error or annotations."""
    match state:
        case Rejected():
            return Rejected()
        case Modified():
            return Modified(state.delivery_failed, state.undeliverable_here)
    return state


def own_properties(given: Mapping[Any, Any] | None) -> Mapping[str, object] | None:
    """Return the application properties that the client changes, or None."""
    return {str(name): value for name, value in given.items()} if given else None


def _dead_letter(token: bytes, error: AmqpError | None) -> Settlement:
    reason = description = None
    own: dict[str, object] = {}
    if error is not None:
        own = dict(own_properties(error.info) or {})
        reason, description = _take_text(own, DEAD_LETTER_REASON), _take_text(own, DEAD_LETTER_DESCRIPTION)
        if error.condition != DEAD_LETTER:
            reason = reason or error.condition
        description = description or error.description
    return Settlement(Action.DEAD_LETTER, token, properties=own or None, reason=reason, description=description)


def _take_text(own: dict[str, object], name: str) -> str | None:
    """Remove a text from the properties and return it. A value of another type stays a property, unless it is null."""
    value = own.get(name)
    if value is None or isinstance(value, str):
        own.pop(name, None)
        return value and str(value)
    return None
