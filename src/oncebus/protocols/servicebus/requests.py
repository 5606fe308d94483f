"""Requests and their answers: the part that $cbs and $management share.

A request is a message on one of the client's links. The answer goes out on a link that the client has attached to the
same node in the same session. If there are several, the request's reply-to selects one: by the address of its target or
by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oncebus import amqp
from oncebus.amqp.conditions import NOT_ALLOWED
from oncebus.amqp.head import Properties
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.message import AmqpValue
from oncebus.amqp.outcomes import Accepted, AmqpError, Rejected, TransactionalState
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import Target
from oncebus.amqp.types import Int, Symbol
from oncebus.model.entities import BadRequest, Entity, NotFound
from oncebus.protocols.servicebus.attached import Attached, LinkConnection
from oncebus.protocols.servicebus.errors import AmqpRefusal
from oncebus.protocols.servicebus.nodes import Node, NodeKind

_NO_REPLY = "There is no link for the answer: attach a receiver to the same address first."


class NodeRequest(NamedTuple):
    """A request. `properties` are the application properties, `body` is the value of the message."""

    operation: str
    properties: Mapping[str, Any]
    body: Any
    id: amqp.Id | None
    reply_to: str | None


class NodeResponse(NamedTuple):
    """The answer to a request."""

    status: int
    text: str = "OK"
    body: Any = None
    condition: str | None = None


def read_request(payload: bytes) -> NodeRequest:
    """Return the request in a message. Raises `DecodeError` or `BadRequest`."""
    _, _, _, head, body = amqp.split(payload)
    fields = amqp.properties(head)
    properties = amqp.application_properties(head)
    operation = properties.get("operation")
    if isinstance(operation, bytes):
        operation = operation.decode(errors="replace")
    if not isinstance(operation, str):
        raise BadRequest(f"The property 'operation' of the request has value {operation!r:.100}. Not a string.")
    content = amqp.decode_body(body)
    value = content.value if isinstance(content, AmqpValue) else content
    identity = fields.message_id if fields.message_id is not None else fields.correlation_id
    return NodeRequest(operation, properties, value, identity, fields.reply_to)


def refusal_response(refusal: AmqpRefusal) -> NodeResponse:
    """Return the answer for a refused request."""
    return NodeResponse(refusal.status, refusal.text, None, refusal.condition)


def encode_response(response: NodeResponse, identity: amqp.Id | None, kind: NodeKind) -> bytes:
    """Return an answer as a message. $cbs uses the property names of AMQP, $management those of the service."""
    if kind is NodeKind.TOKENS:
        properties: dict[str, object] = {
            "status-code": Int(response.status),
            "status-description": response.text,
        }
    else:
        properties = {"statusCode": Int(response.status), "statusDescription": response.text}
        if response.condition is not None:
            properties["errorCondition"] = Symbol(response.condition)
    head, body = amqp.encode_message(Properties(correlation_id=identity), properties, AmqpValue(response.body))
    return head + body


def find_managed(attached: Attached[Any]) -> Entity:
    """Return the entity whose $management a link is attached to.

    Raises `AccessRefused` if the client has no token for it, `NotFound` if it does not exist.
    """
    node = attached.node
    attached.held_by = attached.client.credentials.require_any(node.path)
    entity = attached.front.broker.catalogue.find(node.address.path)
    if entity is None:
        raise NotFound(node.address.path)
    return entity


class Replies(Attached[OutgoingLink]):
    """The link for answers."""

    def __init__(self, client: LinkConnection, link: OutgoingLink, node: Node) -> None:
        super().__init__(client, link, node)
        self._sent = 0
        self._then: dict[Callable[[], None], None] = {}
        self.check()

    def open(self) -> None:
        """See `Attached`."""
        # With the settle modes that the client asked for, because some clients insist. Answers are sent settled anyway.
        self.link.accept()
        self.is_accepted = True

    def check(self) -> None:
        """See `Attached`."""
        if self.node.kind is NodeKind.MANAGEMENT:
            find_managed(self)

    def send(self, payload: bytes) -> None:
        """Send an answer if the link is open. It does not wait for credit, because some clients never renew it."""
        if self.link.is_open:
            self._sent += 1
            self.link.send(payload, self._sent.to_bytes(8), settled=True, beyond_credit=True)
            self.client.flush()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` once no answer is waiting to be written, or the link has ended.

        If that is already so, call it at once.
        """
        self._then[then] = None
        self.on_credit()

    def on_credit(self) -> None:
        """See `Attached`. Calls the callbacks of `when_written`."""
        if not self.link.waiting:
            callbacks, self._then = self._then, {}
            for then in callbacks:
                then()

    def on_end(self) -> None:
        """See `Attached`."""
        self.on_credit()

    def answers_to(self, reply_to: str | None) -> bool:
        """Return whether a request's reply-to selects this link."""
        target = self.link.attach.target
        return reply_to is not None and (
            self.link.name == reply_to or (isinstance(target, Target) and target.address == reply_to)
        )


def _find_replies(attached: Attached[IncomingLink], reply_to: str | None) -> Replies | None:
    """Return the link for the answer to a request, or None if there is none."""
    found, node = None, attached.node
    for other in attached.link.session.links:
        replies = other.context
        if isinstance(replies, Replies) and other.is_open and replies.node.kind is node.kind:
            if replies.answers_to(reply_to) and replies.node.path.lower() == node.path.lower():
                return replies
            if found is None and replies.node.path.lower() == node.path.lower():
                found = replies
    return found


def begin_request(attached: Attached[IncomingLink], delivery: Delivery) -> tuple[NodeRequest, Replies] | None:
    """Read and accept a request. Return it and the link for its answer.

    Reject it and return None if it is malformed or has no such link.
    """
    try:
        request = read_request(delivery.payload)
    except Exception as error:
        attached.link.settle([delivery], Rejected(attached.client.refusal(error).error))
        return None
    replies = _find_replies(attached, request.reply_to)
    if replies is None:
        attached.link.settle([delivery], Rejected(AmqpError(NOT_ALLOWED, _NO_REPLY)))
        return None
    if not delivery.settled:
        state = delivery.state
        answer = TransactionalState(state.txn_id, Accepted()) if isinstance(state, TransactionalState) else Accepted()
        attached.link.settle([delivery], answer)
    return request, replies
