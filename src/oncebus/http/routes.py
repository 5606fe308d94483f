"""What all fronts share: the route to one, who is let in, and what happens to a request that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from oncebus.access import Grant, Guard
from oncebus.http.errors import HEADERS_TOO_LONG, Refused, error_response
from oncebus.http.limits import Limits
from oncebus.http.requests import Asked


class FrontRoute(BaseRoute):
    """The requests of one front. It reads the path from the bytes that came, not from what a router makes of them."""

    def __init__(self, owns: Callable[[Scope], bool], respond: Callable[[Asked], Awaitable[Response]]) -> None:
        self._owns = owns
        self._respond = respond

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See `BaseRoute`."""
        return (Match.FULL if scope["type"] == "http" and self._owns(scope) else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `BaseRoute`."""
        response = await self._respond(Asked(scope, receive, send))
        await response(scope, receive, send)


def admit(request: Asked, guard: Guard, limits: Limits) -> Grant:
    """Return what the token of a request permits. Nothing else is said or looked up before."""
    grant = guard.verify(", ".join(request.headers.getlist("authorization")))
    request.mark_known()
    if request.header_bytes > limits.header_bytes:
        raise Refused(400, HEADERS_TOO_LONG)
    return grant


async def answered(request: Asked, work: Awaitable[Response], answer: Callable[[Exception], Response]) -> Response:
    """Return the response that the work brings, or the answer to what it raises."""
    try:
        return await work
    except ClientDisconnect:
        # Nobody will read it.
        return error_response(400, "The client has gone away.")
    except Exception as error:
        response = answer(error)
        await request.leave(response)
        return response
