"""Errors over HTTP: one table that maps exceptions to a status and a text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from starlette.responses import Response

from oncebus import filters
from oncebus.access import AccessRefused, BadAuthorizationRule, KeyFileError, RuleRefused
from oncebus.amqp import DecodeError, EncodeError
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import FAILED, NO_ROOM, NOT_READY, NOT_STORABLE, BrokerClosed, ServerBusy
from oncebus.broker.sending import MessageTooLarge
from oncebus.entities import (
    AlreadyExists,
    BadRequest,
    CatalogueFileError,
    EntityDisabled,
    EntityError,
    NotFound,
    QuotaExceeded,
)
from oncebus.errors import OncebusError, shown
from oncebus.inbox import InboxFull, RowsRefused
from oncebus.store import StoreFull

log = logging.getLogger(__name__)

LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
)
HEADERS_TOO_LONG = "The size of the request headers is too long."
UPGRADE_WITH_BODY = "A request with a body cannot ask for another protocol. Send it without the header Upgrade."
NO_PLACE = "The server is busy: the key of this request has too many connections. Close some, or try again later."
RETRY_SECONDS = 10


class Refused(OncebusError):
    """An error of HTTP itself, with its status."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})


class _Entry(NamedTuple):
    kind: type[OncebusError]
    status: int
    # Replaces the error's own text if that names paths and files, which only the operator may see.
    text: str | None = None


# The first entry that matches counts.
_TABLE = (
    _Entry(AccessRefused, 401),
    _Entry(BrokerClosed, 503),
    _Entry(ServerBusy, 503),
    _Entry(ClockLeapt, 503),
    _Entry(InboxFull, 503, NO_ROOM),
    _Entry(StoreFull, 503, NO_ROOM),
    _Entry(RuleRefused, 409),
    _Entry(KeyFileError, 503, NOT_READY),
    _Entry(CatalogueFileError, 503, NOT_READY),
    _Entry(MessageTooLarge, 413),
    _Entry(NotFound, 404),
    _Entry(AlreadyExists, 409),
    _Entry(EntityDisabled, 403),
    _Entry(QuotaExceeded, 403),
    _Entry(BadRequest, 400),
    _Entry(BadAuthorizationRule, 400),
    _Entry(filters.BadRule, 400),
    _Entry(EncodeError, 400),
    _Entry(DecodeError, 400),
    _Entry(RowsRefused, 400, NOT_STORABLE),
)


class ErrorAnswer(NamedTuple):
    """The status, text and headers that a client gets for an error, before a front puts them into its own format."""

    status: int
    text: str
    headers: dict[str, str]


NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, escaped or not."""


def bad(text: str) -> BadRequest:
    """Return the error for a malformed request. The text names the thing and its value."""
    return BadRequest(text)


def wrong_method(method: str, allowed: Iterable[str]) -> Refused:
    """Return the error for a method that the path does not allow."""
    return Refused(405, f"The method {shown(method)} is not allowed here.", {"allow": ", ".join(allowed)})


def answer(error: Exception) -> Response:
    """Return the response to a request that failed."""
    return error_response(*error_answer(error))


def error_answer(error: Exception) -> ErrorAnswer:
    """Return the answer that the client gets for an error.

    An unexpected error is logged, and the client sees no details.
    """
    if isinstance(error, Refused):
        return ErrorAnswer(error.status, str(error), error.headers)
    for entry in _TABLE:
        if isinstance(error, entry.kind):
            if entry.text is not None:
                log.error("A request was refused: %s", error)
            is_temporary = entry.status == 503
            # A busy server is not the entity's fault, so its sub code is left out then.
            own = error.detail if isinstance(error, EntityError) and not is_temporary else str(error)
            headers = {"retry-after": str(RETRY_SECONDS)} if is_temporary else {}
            return ErrorAnswer(entry.status, entry.text or own, headers)
    log.error("A request failed", exc_info=error)
    return ErrorAnswer(500, FAILED, {})


def error_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response in the service's format."""
    safe = escape(NOT_XML.sub("\ufffd", detail))
    body = f"<Error><Code>{status}</Code><Detail>{safe}</Detail></Error>"
    return Response(body.encode(), status, headers, "application/xml; charset=utf-8")
