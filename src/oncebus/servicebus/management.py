"""The link for requests to an entity's $management."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import NamedTuple

from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.entities import NotFound, Subscription
from oncebus.servicebus.addresses import Kind, Node
from oncebus.servicebus.arguments import Arguments
from oncebus.servicebus.attached import Attached, Client
from oncebus.servicebus.errors import NOT_IMPLEMENTED, Refused, refusal_of
from oncebus.servicebus.operations import OPERATIONS, Asked
from oncebus.servicebus.requests import Replies, Request, Response, begin, encoded, managed, refused
from oncebus.servicebus.session_receiver import SessionReceiver

ASSOCIATED_LINK = "associated-link-name"
SERVER_TIMEOUT = "com.microsoft:server-timeout"
_LONGEST_TIMEOUT = 86_400_000
_LEAST_LIMIT = 1 << 20
_AROUND = 64 << 10


class _Pending(NamedTuple):
    request: Request
    replies: Replies
    size: int


class ManagementRequests(Attached[IncomingLink]):
    """Runs requests concurrently, so that a slow request does not delay the others. Above a limit, requests wait."""

    def __init__(self, client: Client, link: IncomingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self._entity = managed(self)
        self._waiting: deque[_Pending] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept(max_message_size=self._largest())
        self.is_accepted = True
        self.link.grant(self.front.limits.requests)

    def delivered(self, delivery: Delivery) -> None:
        """See `Attached`."""
        begun = begin(self.link, self.node, delivery)
        if begun is None:
            self._top_up()
            return
        pending = _Pending(*begun, len(delivery.payload))
        self.client.hold(pending.size)
        self._waiting.append(pending)
        self._begin()

    def check(self) -> None:
        """See `Attached`."""
        if managed(self).id != self._entity.id:
            raise NotFound(self.node.address.path)

    def ended(self) -> None:
        """See `Attached`. Requests are cancelled, but one that has started may still take effect."""
        self.client.hold(-sum(pending.size for pending in self._waiting))
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self.front.limits.requests:
            pending = self._waiting.popleft()
            task = self.front.tasks.start(self._answer(pending.request, pending.replies))
            self._running.add(task)
            task.add_done_callback(partial(self._done, pending))

    def _done(self, pending: _Pending, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.client.hold(-pending.size)
        self._begin()
        # No new credit for a client that does not read its answers.
        pending.replies.when_written(self._top_up)
        self.client.flush()

    async def _answer(self, request: Request, replies: Replies) -> None:
        try:
            response = await self._respond(request)
        except Exception as error:
            response = refused(refusal_of(error))
        replies.send(encoded(response, request.id, Kind.MANAGEMENT))
        self.client.flush()

    async def _respond(self, request: Request) -> Response:
        does = OPERATIONS.get(request.operation)
        if does is None:
            text = f"The operation '{request.operation:.100}' is not known at $management."
            raise Refused(NOT_IMPLEMENTED, 501, text)
        self.client.credentials.require(does.operation, self.node.path)
        link_name = request.properties.get(ASSOCIATED_LINK)

        def holder(session: str) -> SessionReceiver | None:
            return holder_of(self.client, self._entity.id, session, link_name)

        asked = Asked(self.front, self.node.address, Arguments(request.body), holder)
        async with asyncio.timeout(self._seconds(request)):
            body = await does.handler(asked)
        if body is None:
            return Response(204, "No Content", {})
        return Response(200, "OK", body)

    def _largest(self) -> int:
        """Return the largest size of a request: it may hold the largest message, plus some overhead."""
        kilobytes = None if isinstance(self._entity, Subscription) else self._entity.max_message_size_in_kilobytes
        return max(_LEAST_LIMIT, (kilobytes or 0) * 1024 + _AROUND)

    def _seconds(self, request: Request) -> float:
        """Return the time-out of a request. Clients write 0 for none."""
        given = request.properties.get(SERVER_TIMEOUT)
        if isinstance(given, int) and given > 0:
            return min(given, _LONGEST_TIMEOUT) / 1000
        return self.front.limits.request_seconds

    def _top_up(self) -> None:
        most = self.front.limits.requests
        left = most - len(self._running) - len(self._waiting)
        if left > 0 and self.link.credit < most // 2:
            self.link.grant(left)


def holder_of(client: Client, entity: int, session: str, link_name: object) -> SessionReceiver | None:
    """Return the client's link that holds a session, or None. If two do, one of them closing, prefer `link_name`."""
    found = [
        each
        for each in client.links
        if isinstance(each, SessionReceiver)
        and each.lock is not None
        and (each.lock.entity, each.lock.session) == (entity, session)
    ]
    named = [each for each in found if each.link.name == link_name]
    return next(iter(named or found), None)
