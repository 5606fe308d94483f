"""Errors in the Resource Manager's format: {"error": {"code": …, "message": …}}."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from oncebus.model.access import AccessRefused, Reason
from oncebus.model.entities import QuotaExceeded
from oncebus.protocols.http.errors import Refused, error_answer
from oncebus.protocols.management.authorization_rules import RulesFixed
from oncebus.protocols.management.reading import NotAnObject

_CODES = {
    400: "BadRequest",
    401: "AuthenticationFailed",
    403: "AuthorizationFailed",
    404: "ResourceNotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    412: "PreconditionFailed",
    413: "RequestEntityTooLarge",
    503: "ServiceUnavailable",
}


class ArmRefused(Refused):
    """An error of the Resource Manager API itself, with its code."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, text)
        self.code = code


def bad_content(text: str) -> ArmRefused:
    """Return the error for a request whose body is invalid. `text` says why."""
    return ArmRefused(400, "InvalidRequestContent", text)


def answer(error: Exception) -> Response:
    """Return the response to a request that failed."""
    if isinstance(error, NotAnObject):
        error = bad_content(str(error))
    elif isinstance(error, RulesFixed):
        error = Refused(405, str(error), {"allow": "GET"})
    status, text, headers = error_answer(error)
    if isinstance(error, AccessRefused) and error.reason in (Reason.RIGHT, Reason.AUDIENCE):
        # The Atom API answers 401 here. The Resource Manager answers 403 if the caller is known but lacks the right.
        status = 403
    code = _CODES.get(status, "InternalServerError")
    if isinstance(error, ArmRefused):
        code = error.code
    elif isinstance(error, QuotaExceeded) and status == 403:
        code = "QuotaExceeded"
    return JSONResponse({"error": {"code": code, "message": text}}, status, headers)
