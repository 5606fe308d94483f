"""Errors over HTTP: their status by their kind, and their text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from starlette.responses import Response

from oncebus.model.entities import EntityError
from oncebus.values.errors import FAILED, ErrorKind, OncebusError, clip

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


_STATUS = {
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.OUT_OF_RANGE: 400,
    ErrorKind.UNREADABLE: 400,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.NOT_ALLOWED: 400,
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.DISABLED: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.EXISTS: 409,
    ErrorKind.CONFLICT: 409,
    ErrorKind.QUOTA: 403,
    ErrorKind.LOCKED: 410,
    ErrorKind.LOST_LOCK: 410,
    ErrorKind.GONE: 404,
    ErrorKind.ROLLED_BACK: 400,
    ErrorKind.BUSY: 503,
}


class ErrorAnswer(NamedTuple):
    """The status, text and headers that a client gets for an error, before a front puts them into its own format."""

    status: int
    text: str
    headers: dict[str, str]


NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, escaped or not."""


def wrong_method(method: str, allowed: Iterable[str]) -> Refused:
    """Return the error for a method that the path does not allow."""
    return Refused(405, f"The method {clip(method)} is not allowed here.", {"allow": ", ".join(allowed)})


def answer(error: Exception) -> Response:
    """Return the response to a request that failed."""
    return error_response(*error_answer(error))


def error_answer(error: Exception) -> ErrorAnswer:
    """Return the answer that the client gets for an error.

    An unexpected error is logged, and the client sees no details.
    """
    if isinstance(error, Refused):
        return ErrorAnswer(error.status, str(error), error.headers)
    if isinstance(error, OncebusError) and error.kind in _STATUS:
        if error.told is not None:
            log.error("A request was refused: %s", error)
        if error.kind is ErrorKind.BUSY:
            # Not the entity's fault, so its sub code is left out.
            return ErrorAnswer(503, error.told or str(error), {"retry-after": str(RETRY_SECONDS)})
        own = error.detail if isinstance(error, EntityError) else str(error)
        return ErrorAnswer(_STATUS[error.kind], error.told or own, {})
    log.error("A request failed", exc_info=error)
    return ErrorAnswer(500, FAILED, {})


def error_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response in the service's format."""
    safe = escape(NOT_XML.sub("\ufffd", detail))
    body = f"<Error><Code>{status}</Code><Detail>{safe}</Detail></Error>"
    return Response(body.encode(), status, headers, "application/xml; charset=utf-8")
