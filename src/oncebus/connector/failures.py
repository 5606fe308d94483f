"""Turns the exceptions of the official client into errors of one line, and says which of them may pass."""

from __future__ import annotations

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from oncebus.connector.errors import ServiceBusFailure
from oncebus.errors import OncebusError

_PASSING = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)
_REFUSALS = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
# The client appends this to every description, and it tells the reader nothing.
_NOISE = " Error condition: "
_SHUTDOWN = ("amqp:connection:forced", "amqp:internal-error", "com.microsoft:timeout", "amqp:link:detach-forced")


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed later, without anybody changing anything: the broker is away or busy.

    A token that could not be checked because the connection broke counts as such; a token that was refused does not.
    """
    if isinstance(error, _REFUSALS):
        return _status(error) is None
    if isinstance(error, ServiceBusError):
        return isinstance(error, _PASSING) or any(condition in str(error) for condition in _SHUTDOWN)
    # A connection that breaks at a bad moment gives all kinds of errors: of sockets, of states, of attributes.
    return not isinstance(error, AzureError | OncebusError)


def failure(error: BaseException, doing: str) -> ServiceBusFailure:
    """Return the error for the user: `doing` says what failed and where, for example "Receiving from queue 'a'"."""
    inner = getattr(error, "inner_exception", None)
    text = str(inner if isinstance(error, _REFUSALS) and inner is not None else error)
    reason = " ".join(text.partition(_NOISE)[0].split()) or type(error).__name__
    _, _, description = reason.partition("Description: ")
    hint = " Check the connection string or credential, and its rights." if _status(error) in (401, 403) else ""
    return ServiceBusFailure(f"{doing} failed: {description or reason}{hint}")


def _status(error: BaseException) -> int | None:
    """Return the status that the broker gave to a token; None if it gave none."""
    status = getattr(getattr(error, "inner_exception", None), "status_code", None)
    return status if isinstance(status, int) else None
