"""Code that all fronts share: routing, authentication, and responses to failed requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from oncebus.model.access import Grant, Guard
from oncebus.protocols.http.errors import HEADERS_TOO_LONG, Refused, error_response
from oncebus.protocols.http.limits import Limits
from oncebus.protocols.http.requests import HttpRequest


class FrontRoute(BaseRoute):
    """The route to one front. The front decides by the raw path, because a router would decode escaped slashes."""

    def __init__(self, owns: Callable[[Scope], bool], respond: Callable[[HttpRequest], Awaitable[Response]]) -> None:
        self._owns = owns
        self._respond = respond

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See `BaseRoute`."""
        return (Match.FULL if scope["type"] == "http" and self._owns(scope) else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `BaseRoute`."""
        request = HttpRequest(scope, receive, send)
        response = await self._respond(request)
        if request.has_given_way:
            # Nobody counts this connection any more.
            response.headers["connection"] = "close"
        await response(scope, receive, send)


async def admit(request: HttpRequest, guard: Guard, limits: Limits) -> Grant:
    """Verify the token of a request, and return its rights. Raises `AccessRefused`.

    This comes first, so that an unauthenticated caller learns nothing else.
    """
    token = ", ".join(request.headers.getlist("authorization"))
    kid = guard.unknown_key(token)
    if kid is not None:
        with request.giving_way():
            await guard.find_key(kid)
    grant = guard.verify(token)
    request.identify(grant.signer)
    if request.header_bytes > limits.header_bytes:
        raise Refused(400, HEADERS_TOO_LONG)
    return grant


async def respond_safely(
    request: HttpRequest, work: Awaitable[Response], answer: Callable[[Exception], Response]
) -> Response:
    """Return the response of `work`. If it raises, return the response that `answer` makes from the exception."""
    try:
        return await work
    except ClientDisconnect:
        # No client is left to read this.
        return error_response(400, "The client has disconnected.")
    except Exception as error:
        response = answer(error)
        await request.leave(response)
        return response
