"""The handshake that turns an HTTP connection into a WebSocket for AMQP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import unquote

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from oncebus.protocols.http.protocol import Header, Upgraded
from oncebus.protocols.servicebus.transport import AmqpProtocol
from oncebus.protocols.servicebus.websocket import WebSocket
from oncebus.values.errors import clip

PATH = "/$servicebus/websocket"
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""The names of AMQP in the handshake: that of Service Bus, and the standard's."""

_log = logging.getLogger(__name__)


class Upgrade:
    """Answers requests for a WebSocket, and makes the protocol that takes over their connection.

    `foreign` takes the headers Host and Origin of a request, and returns the host in them that is not the broker's, or
    None. It refuses such requests: browsers let any page open a WebSocket to any host.
    """

    def __init__(
        self,
        make_protocol: Callable[[], AmqpProtocol],
        foreign: Callable[[str, str | None], str | None] | None = None,
    ) -> None:
        self._make_protocol = make_protocol
        self._foreign = foreign

    def __call__(self, path: bytes, headers: Sequence[Header]) -> Upgraded | None:
        """Return the response to a GET request that asks for an upgrade; None if its path is not the path for AMQP."""
        if unquote(path.decode("latin-1")).rstrip("/").lower() != PATH:
            return None
        given = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
        handshake = ServerProtocol(select_subprotocol=_select, logger=_log)
        response = self._refuse(handshake, given) or handshake.accept(Request(PATH, given))
        is_accepted = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        return Upgraded(response.serialize(), WebSocket(self._make_protocol()) if is_accepted else None)

    def _refuse(self, handshake: ServerProtocol, headers: Headers) -> Response | None:
        if self._foreign is None:
            return None
        # A browser sends each of them once. With more than one, all must be ours.
        for host in headers.get_all("Host") or [""]:
            for origin in headers.get_all("Origin") or [""]:
                other = self._foreign(host, origin or None)
                if other is not None:
                    text = f"The host {clip(other)} is not this broker's.\n"
                    return handshake.reject(HTTPStatus.MISDIRECTED_REQUEST, text)
        return None


def _select(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
    for name in offered:
        if name in SUBPROTOCOLS:
            return name
    raise NegotiationError(f"the subprotocol must be {' or '.join(SUBPROTOCOLS)}")
