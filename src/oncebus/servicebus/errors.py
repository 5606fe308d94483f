"""Translates exceptions to the error conditions that AMQP clients know, in one table.

A rejected message and a refused or detached link get a condition and a description. The answer to a management request
also has a status like that of HTTP.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from oncebus.access import AccessRefused, KeyFileError
from oncebus.amqp import DecodeError, EncodeError
from oncebus.amqp.conditions import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from oncebus.amqp.performatives import AmqpError
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import FAILED, NO_ROOM, NOT_READY, NOT_STORABLE, BrokerClosed, ServerBusy
from oncebus.broker.sending import MessageTooLarge
from oncebus.broker.transactions import RolledBack, TransactionFailed, UnknownTransaction
from oncebus.entities import (
    AlreadyExists,
    BadRequest,
    CatalogueFileError,
    EntityDisabled,
    InvalidOperation,
    NotFound,
    OutOfRange,
    QuotaExceeded,
)
from oncebus.entities.errors import not_found
from oncebus.errors import OncebusError
from oncebus.filters import BadRule
from oncebus.inbox import InboxFull, RowsRefused
from oncebus.store import ChangesRefused, Outcome, SessionCannotBeLocked, SessionLockLost, StoreFull

log = logging.getLogger(__name__)

ALREADY_EXISTS = "com.microsoft:entity-already-exists"
ARGUMENT = "com.microsoft:argument-error"
BUSY = "com.microsoft:server-busy"
DISABLED = "com.microsoft:entity-disabled"
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
TIMEOUT = "com.microsoft:timeout"
TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
TRANSACTION_UNKNOWN = "amqp:transaction:unknown-id"

_SESSION_TAKEN = "The requested session cannot be accepted. It may be locked by another receiver."
_SESSION_LOST = "The session lock has expired on the session. Accept the session again."


class Refusal(NamedTuple):
    """The error that the client gets."""

    condition: str
    status: int
    text: str

    @property
    def error(self) -> AmqpError:
        """Return the refusal as the error of a link or of a message."""
        return AmqpError(self.condition, self.text)


class Refused(OncebusError):
    """A refusal by this protocol itself, rather than by the broker."""

    def __init__(self, condition: str, status: int, text: str) -> None:
        super().__init__(text)
        self.refusal = Refusal(condition, status, text)


class _Entry(NamedTuple):
    kind: type[Exception]
    condition: str
    status: int
    # Replaces the text of an error that is meant for the operator or uses internal terms.
    text: str | None = None
    is_logged: bool = False


# The first match counts.
_TABLE = (
    _Entry(AccessRefused, UNAUTHORIZED_ACCESS, 401),
    _Entry(BrokerClosed, BUSY, 503),
    _Entry(ServerBusy, BUSY, 503),
    _Entry(ClockLeapt, BUSY, 503),
    _Entry(InboxFull, BUSY, 503, NO_ROOM, is_logged=True),
    _Entry(StoreFull, BUSY, 503, NO_ROOM, is_logged=True),
    _Entry(KeyFileError, BUSY, 503, NOT_READY, is_logged=True),
    _Entry(CatalogueFileError, BUSY, 503, NOT_READY, is_logged=True),
    _Entry(UnknownTransaction, TRANSACTION_UNKNOWN, 404),
    _Entry(TransactionFailed, TRANSACTION_ROLLBACK, 400),
    _Entry(MessageTooLarge, MESSAGE_SIZE_EXCEEDED, 403),
    _Entry(AlreadyExists, ALREADY_EXISTS, 409),
    _Entry(EntityDisabled, DISABLED, 403),
    _Entry(QuotaExceeded, RESOURCE_LIMIT_EXCEEDED, 403),
    _Entry(OutOfRange, OUT_OF_RANGE, 400),
    _Entry(InvalidOperation, NOT_ALLOWED, 400),
    _Entry(BadRequest, ARGUMENT, 400),
    _Entry(BadRule, ARGUMENT, 400),
    _Entry(DecodeError, DECODE_ERROR, 400),
    _Entry(EncodeError, ARGUMENT, 400),
    _Entry(RowsRefused, ARGUMENT, 400, NOT_STORABLE, is_logged=True),
    _Entry(SessionCannotBeLocked, SESSION_CANNOT_BE_LOCKED, 410, _SESSION_TAKEN),
    _Entry(SessionLockLost, SESSION_LOCK_LOST, 410, _SESSION_LOST),
    _Entry(TimeoutError, TIMEOUT, 408, "The operation did not complete within the allotted time."),
)

_OUTCOMES = {
    Outcome.MESSAGE_LOCK_LOST: Refusal(
        MESSAGE_LOCK_LOST,
        410,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue, or was received by a different receiver instance.",
    ),
    Outcome.SESSION_LOCK_LOST: Refusal(SESSION_LOCK_LOST, 410, _SESSION_LOST),
    Outcome.IN_TRANSACTION: Refusal(
        NOT_ALLOWED, 400, "The message is settled in a transaction that has not been discharged yet."
    ),
    Outcome.ALREADY_DEAD_LETTERED: Refusal(
        NOT_ALLOWED, 400, "A message of a dead-letter queue cannot be dead-lettered again."
    ),
    Outcome.MESSAGE_NOT_FOUND: Refusal(MESSAGE_NOT_FOUND, 404, "One or more of the messages could not be found."),
}


def refusal_of(error: Exception, host: str) -> Refusal:
    """Return the refusal for an error. An unexpected error is logged, and the client gets no details of it.

    `host` is the host name in the address of a missing entity.
    """
    if isinstance(error, Refused):
        return error.refusal
    if isinstance(error, NotFound):
        return Refusal(NOT_FOUND, 404, not_found(f"sb://{host}/{error.path}"))
    if isinstance(error, ChangesRefused):
        return _OUTCOMES[error.outcome]
    if isinstance(error, RolledBack):
        text = f"The transaction was rolled back. {refusal_of(error.reason, host).text}"
        return Refusal(TRANSACTION_ROLLBACK, 400, text)
    for entry in _TABLE:
        if isinstance(error, entry.kind):
            if entry.is_logged:
                log.error("A request was refused: %s", error)
            return Refusal(entry.condition, entry.status, entry.text or str(error))
    log.error("A request failed", exc_info=error)
    return Refusal(INTERNAL_ERROR, 500, FAILED)


def refusal_of_outcome(outcome: Outcome) -> Refusal | None:
    """Return why a message was not settled, renewed or cancelled, or None if it was."""
    return _OUTCOMES.get(outcome)
