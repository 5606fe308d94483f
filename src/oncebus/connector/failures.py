"""Turns the exceptions of the official client into errors of one line, and says which of them may pass."""

from __future__ import annotations

import logging
import os
import re

from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from oncebus.connector.errors import BadOption, NotAllowed, ServiceBusFailure, TooLarge
from oncebus.values.errors import OncebusError

_LOG = logging.getLogger("oncebus.connector")
NO_ANSWER = "There is no answer in time."
_PASSING = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    # The entity is full until its receivers have made room.
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    # The service that gives out tokens cannot be reached.
    ServiceRequestError,
    ServiceResponseError,
)
_REFUSALS = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
# The client appends this to every description, and it tells the reader nothing.
_NOISE = " Error condition: "
# asyncio gives the address in place of the reason.
_NOT_CONNECTED = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NOT_ALLOWED = "amqp:not-allowed"
_SHUTDOWN = ("amqp:connection:forced", "amqp:internal-error", "com.microsoft:timeout", "amqp:link:detach-forced")


def may_pass(error: BaseException, *, is_renewable: bool = False) -> bool:
    """Return whether the same call may succeed later, without anybody changing anything: the broker is away or busy.

    A token that could not be checked because the connection broke counts as such; a token that was refused does not.
    But `is_renewable` says that the connection string is in a file and has worked before. Then somebody may be
    replacing the file or its key right now, so a file that cannot be read, and a token that is refused, may pass too.
    """
    if isinstance(error, BadOption):
        return is_renewable
    if isinstance(error, _REFUSALS):
        return is_renewable or _status(error) is None
    if isinstance(error, _PASSING):
        return True
    if isinstance(error, ServiceBusError):
        inner = error.inner_exception
        if inner is not None and not hasattr(inner, "condition"):
            # Not an answer of the broker, but something that the client did not expect.
            return may_pass(inner, is_renewable=is_renewable)
        return any(condition in str(error) for condition in _SHUTDOWN)
    # A connection that breaks at a bad moment gives all kinds of errors: of sockets, of states, of attributes.
    return not isinstance(error, AzureError | OncebusError)


def failure(error: BaseException, doing: str) -> ServiceBusFailure:
    """Return the error for the user: `doing` says what failed and where, for example "Receiving from queue 'a'"."""
    inner = getattr(error, "inner_exception", None)
    text = str(inner if isinstance(error, _REFUSALS) and inner is not None else error)
    text = _NOT_CONNECTED.sub(lambda found: f"[Errno {found[1]}] {os.strerror(int(found[1]))}", text)
    unnamed = NO_ANSWER if isinstance(error, TimeoutError) else type(error).__name__
    reason = " ".join(text.partition(_NOISE)[0].split()) or unnamed
    _, _, description = reason.partition("Description: ")
    hint = " Check the connection string or credential, and its rights." if _status(error) in (401, 403) else ""
    kind: type[ServiceBusFailure] = ServiceBusFailure
    if isinstance(error, MessageSizeExceededError):
        kind = TooLarge
    elif isinstance(error, ServiceBusError) and _NOT_ALLOWED in str(error):
        kind = NotAllowed
    return kind(f"{doing} failed: {description or reason}{hint}")


def log_retry(error: BaseException, doing: str, seconds: float) -> None:
    """Log a warning for an error that may pass, when the first of several attempts has failed."""
    _LOG.warning("%s. Trying again for %.0f seconds.", str(failure(error, doing)).rstrip("."), seconds)


def _status(error: BaseException) -> int | None:
    """Return the status that the broker gave to a token; None if it gave none."""
    status = getattr(getattr(error, "inner_exception", None), "status_code", None)
    return status if isinstance(status, int) else None
