"""The link for requests to an entity's $management."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

from oncebus.amqp.conditions import NOT_IMPLEMENTED
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.broker.transactions import RequestUnfinished, UnknownTransaction, Work
from oncebus.model.entities import Subscription
from oncebus.model.entities.names import session_key
from oncebus.protocols.servicebus.arguments import RequestArguments
from oncebus.protocols.servicebus.attached import Attached, LinkConnection
from oncebus.protocols.servicebus.errors import AmqpRefused
from oncebus.protocols.servicebus.nodes import Node, NodeKind
from oncebus.protocols.servicebus.operations import OPERATIONS, Invocation
from oncebus.protocols.servicebus.requests import (
    NodeRequest,
    NodeResponse,
    Replies,
    begin_request,
    encode_response,
    find_managed,
    refusal_response,
)
from oncebus.protocols.servicebus.session_receiver import SessionReceiver
from oncebus.protocols.servicebus.transactions import work_of

ASSOCIATED_LINK = "associated-link-name"
SERVER_TIMEOUT = "com.microsoft:server-timeout"
_LEAST_LIMIT = 1 << 20
_AROUND = 64 << 10


class _Pending(NamedTuple):
    request: NodeRequest
    replies: Replies
    size: int
    # Its part in a transaction, if it has one.
    work: Work | None


class ManagementRequests(Attached[IncomingLink]):
    """Runs requests concurrently, so that a slow request does not delay the others. Above a limit, requests wait."""

    def __init__(self, client: LinkConnection, link: IncomingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self._entity = find_managed(self)
        self._waiting: deque[_Pending] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept(max_message_size=self._largest())
        self.is_accepted = True
        self.link.grant(self.front.limits.requests)

    def on_delivery(self, delivery: Delivery) -> None:
        """See `Attached`."""
        begun = begin_request(self, delivery)
        if begun is None:
            self._top_up()
            return
        request, replies = begun
        does, work = OPERATIONS.get(request.operation), None
        if does is not None and does.takes_part:
            try:
                work = work_of(self.client, self.link, delivery.state)
            except UnknownTransaction as error:
                response = refusal_response(self.client.refusal(error))
                replies.send(encode_response(response, request.id, NodeKind.MANAGEMENT))
                self._top_up()
                return
        pending = _Pending(request, replies, len(delivery.payload), work)
        self.client.hold(pending.size)
        self._waiting.append(pending)
        self._begin()

    def check(self) -> None:
        """See `Attached`."""
        self._entity = find_managed(self)

    def on_end(self) -> None:
        """See `Attached`. Requests are cancelled, but one that has started may still take effect."""
        self.client.hold(-sum(pending.size for pending in self._waiting))
        for pending in self._waiting:
            if pending.work is not None:
                pending.work.close(RequestUnfinished())
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self.front.limits.requests:
            pending = self._waiting.popleft()
            task = self.front.tasks.start(self._answer(pending.request, pending.replies, pending.work))
            self._running.add(task)
            task.add_done_callback(partial(self._done, pending))

    def _done(self, pending: _Pending, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if pending.work is not None:
            # Unless it has ended: then the request was cancelled before it began.
            pending.work.close(RequestUnfinished())
        self.client.hold(-pending.size)
        self._begin()
        # No new credit for a client that does not read its answers.
        pending.replies.when_written(self._top_up)
        self.client.flush()

    async def _answer(self, request: NodeRequest, replies: Replies, work: Work | None) -> None:
        try:
            with work or nullcontext():
                response = await self._respond(request, work)
        except Exception as error:
            response = refusal_response(self.client.refusal(error))
        replies.send(encode_response(response, request.id, NodeKind.MANAGEMENT))
        self.client.flush()

    async def _respond(self, request: NodeRequest, work: Work | None) -> NodeResponse:
        does = OPERATIONS.get(request.operation)
        if does is None:
            text = f"The operation '{request.operation:.100}' is unknown at $management."
            raise AmqpRefused(NOT_IMPLEMENTED, 501, text)
        self.client.credentials.require(does.operation, self.node.path)
        # The entity may have been deleted and created again under this name.
        self._entity = find_managed(self)
        link_name = request.properties.get(ASSOCIATED_LINK)

        def holder(session: str | None) -> SessionReceiver | None:
            return holder_of(self.client, self._entity.id, session, link_name)

        given, acting = RequestArguments(request.body), work or self.front.broker
        call = Invocation(self.front, self.node.address, given, holder, acting)
        async with asyncio.timeout(self._seconds(request)):
            await self.client.see_settlements(self._entity.id)
            body = await does.handler(call)
        if body is None:
            return NodeResponse(204, "No Content", {})
        return NodeResponse(200, "OK", body)

    def _largest(self) -> int:
        """Return the largest size of a request: it may hold the largest message, plus some overhead."""
        kilobytes = None if isinstance(self._entity, Subscription) else self._entity.max_message_size_in_kilobytes
        return max(_LEAST_LIMIT, (kilobytes or 0) * 1024 + _AROUND)

    def _seconds(self, request: NodeRequest) -> float:
        """Return the time-out of a request. Clients write 0 for none."""
        given = request.properties.get(SERVER_TIMEOUT)
        if isinstance(given, int) and given > 0:
            return min(given / 1000, self.front.limits.longest_timeout_seconds)
        return self.front.limits.request_seconds

    def _top_up(self) -> None:
        most = self.front.limits.requests
        left = most - len(self._running) - len(self._waiting)
        if left > 0 and self.link.credit < most // 2:
            self.link.grant(left)


def holder_of(client: LinkConnection, entity: int, session: str | None, link_name: object) -> SessionReceiver | None:
    """Return the client's link that holds a session, or None.

    If two links do, because one is closing, prefer `link_name`. Without a session, return the link called `link_name`:
    the client for Go names only the link.
    """
    found = [
        each
        for each in client.links
        if isinstance(each, SessionReceiver) and each.lock is not None and each.lock.entity == entity
    ]
    key = None if session is None else session_key(session)
    named = [each for each in found if each.link.name == link_name and key in (None, _key_of(each))]
    held = [each for each in found if _key_of(each) == key]
    return next(iter(named or held), None)


def _key_of(receiver: SessionReceiver) -> str | None:
    return None if receiver.lock is None else receiver.lock.key
