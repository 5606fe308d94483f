"""Translates errors to the conditions that AMQP clients know, by their kind.

A rejected message and a refused or detached link get a condition and a description. The answer to a management request
also has a status like that of HTTP.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from oncebus.amqp.conditions import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from oncebus.amqp.outcomes import AmqpError
from oncebus.broker.transactions import RolledBack
from oncebus.engine.store import ChangesRefused, Outcome
from oncebus.model.entities import NotFound
from oncebus.model.entities.errors import not_found
from oncebus.values.errors import FAILED, ErrorKind, OncebusError

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


class AmqpRefusal(NamedTuple):
    """The error that the client gets."""

    condition: str
    status: int
    text: str

    @property
    def error(self) -> AmqpError:
        """Return the refusal as the error of a link or of a message."""
        return AmqpError(self.condition, self.text)


class AmqpRefused(OncebusError):
    """A refusal by this protocol itself, rather than by the broker."""

    def __init__(self, condition: str, status: int, text: str) -> None:
        super().__init__(text)
        self.refusal = AmqpRefusal(condition, status, text)


_KINDS = {
    ErrorKind.BAD_REQUEST: (ARGUMENT, 400),
    ErrorKind.OUT_OF_RANGE: (OUT_OF_RANGE, 400),
    ErrorKind.UNREADABLE: (DECODE_ERROR, 400),
    ErrorKind.TOO_LARGE: (MESSAGE_SIZE_EXCEEDED, 403),
    ErrorKind.NOT_ALLOWED: (NOT_ALLOWED, 400),
    ErrorKind.UNAUTHORIZED: (UNAUTHORIZED_ACCESS, 401),
    ErrorKind.DISABLED: (DISABLED, 403),
    ErrorKind.NOT_FOUND: (NOT_FOUND, 404),
    ErrorKind.EXISTS: (ALREADY_EXISTS, 409),
    ErrorKind.CONFLICT: (NOT_ALLOWED, 409),
    ErrorKind.QUOTA: (RESOURCE_LIMIT_EXCEEDED, 403),
    ErrorKind.LOCKED: (SESSION_CANNOT_BE_LOCKED, 410),
    ErrorKind.LOST_LOCK: (SESSION_LOCK_LOST, 410),
    ErrorKind.GONE: (TRANSACTION_UNKNOWN, 404),
    ErrorKind.ROLLED_BACK: (TRANSACTION_ROLLBACK, 400),
    ErrorKind.BUSY: (BUSY, 503),
}
# The service's own texts, in place of those of our errors.
_TEXTS = {ErrorKind.LOCKED: _SESSION_TAKEN, ErrorKind.LOST_LOCK: _SESSION_LOST}

_OUTCOMES = {
    Outcome.MESSAGE_LOCK_LOST: AmqpRefusal(
        MESSAGE_LOCK_LOST,
        410,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue, or was received by a different receiver instance.",
    ),
    Outcome.SESSION_LOCK_LOST: AmqpRefusal(SESSION_LOCK_LOST, 410, _SESSION_LOST),
    Outcome.IN_TRANSACTION: AmqpRefusal(
        NOT_ALLOWED, 400, "The message is settled in a transaction that has not been discharged yet."
    ),
    Outcome.ALREADY_DEAD_LETTERED: AmqpRefusal(
        NOT_ALLOWED, 400, "A message of a dead-letter queue cannot be dead-lettered again."
    ),
    Outcome.MESSAGE_NOT_FOUND: AmqpRefusal(MESSAGE_NOT_FOUND, 404, "One or more of the messages could not be found."),
}


def refusal_of(error: Exception, host: str) -> AmqpRefusal:
    """Return the refusal for an error. An unexpected error is logged, and the client gets no details of it.

    `host` is the host name in the address of a missing entity.
    """
    if isinstance(error, AmqpRefused):
        return error.refusal
    if isinstance(error, NotFound):
        return AmqpRefusal(NOT_FOUND, 404, not_found(f"sb://{host}/{error.path}"))
    if isinstance(error, ChangesRefused):
        return _OUTCOMES[error.outcome]
    if isinstance(error, RolledBack):
        text = f"The transaction was rolled back. {refusal_of(error.reason, host).text}"
        return AmqpRefusal(TRANSACTION_ROLLBACK, 400, text)
    if isinstance(error, TimeoutError):
        return AmqpRefusal(TIMEOUT, 408, "The operation did not complete within the allotted time.")
    if isinstance(error, OncebusError) and error.kind in _KINDS:
        if error.told is not None:
            log.error("A request was refused: %s", error)
        return AmqpRefusal(*_KINDS[error.kind], error.told or _TEXTS.get(error.kind) or str(error))
    log.error("A request failed", exc_info=error)
    return AmqpRefusal(INTERNAL_ERROR, 500, FAILED)


def refusal_of_outcome(outcome: Outcome) -> AmqpRefusal | None:
    """Return why a message was not settled, renewed or cancelled, or None if it was."""
    return _OUTCOMES.get(outcome)
