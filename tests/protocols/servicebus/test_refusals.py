from __future__ import annotations

import logging

import pytest

from oncebus.amqp.types import DecodeError, EncodeError
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MessageTooLarge
from oncebus.engine.inbox import InboxFull
from oncebus.engine.store import Outcome, SessionCannotBeLocked, SessionLockLost, StoreFull
from oncebus.model.access import AccessRefused, KeyFileError, Reason
from oncebus.model.entities import BadRequest, EntityDisabled, InvalidOperation, NotFound, OutOfRange, QuotaExceeded
from oncebus.model.entities.errors import AlreadyExists
from oncebus.model.filters.errors import BadRule
from oncebus.protocols.servicebus.errors import AmqpRefused, refusal_of, refusal_of_outcome
from oncebus.values.errors import OncebusError


@pytest.mark.parametrize(
    ("error", "condition", "status", "text"),
    [
        (NotFound("q"), "amqp:not-found", 404, "The messaging entity 'sb://host/q' could not be found."),
        (EntityDisabled("q"), "com.microsoft:entity-disabled", 403, "Messaging entity 'q' is currently disabled."),
        (AlreadyExists("q"), "com.microsoft:entity-already-exists", 409, None),
        (QuotaExceeded("full"), "amqp:resource-limit-exceeded", 403, "full"),
        (ServerBusy("busy"), "com.microsoft:server-busy", 503, "busy"),
        (MessageTooLarge("large"), "amqp:link:message-size-exceeded", 403, "large"),
        (OutOfRange("far"), "com.microsoft:argument-out-of-range", 400, "far"),
        (InvalidOperation("no session"), "amqp:not-allowed", 400, "no session"),
        (BadRequest("bad"), "com.microsoft:argument-error", 400, "bad"),
        (BadRule("bad rule"), "com.microsoft:argument-error", 400, "bad rule"),
        (AccessRefused(Reason.RIGHT, "no right"), "amqp:unauthorized-access", 401, "no right"),
        (DecodeError("x", 0, "why"), "amqp:decode-error", 400, None),
        (EncodeError("what"), "com.microsoft:argument-error", 400, "what"),
        (ClockLeapt("leapt"), "com.microsoft:server-busy", 503, "leapt"),
        (BrokerClosed(), "com.microsoft:server-busy", 503, None),
        (TimeoutError(), "com.microsoft:timeout", 408, None),
        (AmqpRefused("amqp:not-implemented", 501, "not here"), "amqp:not-implemented", 501, "not here"),
    ],
)
def test_each_error_has_its_condition(error: Exception, condition: str, status: int, text: str | None) -> None:
    refusal = refusal_of(error, "host")
    assert (refusal.condition, refusal.status) == (condition, status)
    if text is not None:
        assert refusal.text == text
    assert refusal.error.condition == condition
    assert refusal.error.description == refusal.text


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (InboxFull("/data/inbox/1.arrow is full"), "com.microsoft:server-busy"),
        (StoreFull("/data/store.db is full"), "com.microsoft:server-busy"),
        (KeyFileError("/data/keys.json is open to others"), "com.microsoft:server-busy"),
        (SessionCannotBeLocked("entity 17"), "com.microsoft:session-cannot-be-locked"),
        (SessionLockLost("entity 17"), "com.microsoft:session-lock-lost"),
        (OncebusError("/data entity 17"), "amqp:internal-error"),
        (ZeroDivisionError("/data entity 17"), "amqp:internal-error"),
    ],
)
def test_texts_for_the_operator_are_not_sent_to_clients(
    error: Exception, condition: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        refusal = refusal_of(error, "host")
    assert refusal.condition == condition
    assert "/data" not in refusal.text
    assert "17" not in refusal.text


def test_each_outcome_except_done_is_a_refusal() -> None:
    conditions = {
        outcome: refusal and refusal.condition for outcome in Outcome for refusal in [refusal_of_outcome(outcome)]
    }
    assert conditions == {
        Outcome.DONE: None,
        Outcome.MESSAGE_LOCK_LOST: "com.microsoft:message-lock-lost",
        Outcome.SESSION_LOCK_LOST: "com.microsoft:session-lock-lost",
        Outcome.MESSAGE_NOT_FOUND: "com.microsoft:message-not-found",
        Outcome.ALREADY_DEAD_LETTERED: "amqp:not-allowed",
        Outcome.IN_TRANSACTION: "amqp:not-allowed",
    }
