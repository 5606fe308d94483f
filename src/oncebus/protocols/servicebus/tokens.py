"""$cbs: the node to which a client puts its tokens, before and while it uses entities."""

from __future__ import annotations

from collections.abc import Callable

from oncebus.amqp.conditions import NOT_IMPLEMENTED
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.model.access import AccessRefused, Reason
from oncebus.model.access.jwts import looks_like_jwt
from oncebus.model.access.tokens import TYPE
from oncebus.model.entities import BadRequest, NotFound
from oncebus.protocols.servicebus.attached import Attached, LinkConnection
from oncebus.protocols.servicebus.errors import AmqpRefused
from oncebus.protocols.servicebus.nodes import Node, NodeKind, node_of
from oncebus.protocols.servicebus.requests import (
    NodeRequest,
    NodeResponse,
    Replies,
    begin_request,
    encode_response,
    refusal_response,
)

PUT_TOKEN = "put-token"
_CREDIT = 50
_NO_TOKEN = "MalformedToken: The token is neither a shared access signature nor a JSON Web Token."


class TokenRequests(Attached[IncomingLink]):
    """The link for put-token requests. It calls `on_trusted` for each valid token."""

    def __init__(self, client: LinkConnection, link: IncomingLink, node: Node, on_trusted: Callable[[], None]) -> None:
        super().__init__(client, link, node)
        self._on_trusted = on_trusted

    def open(self) -> None:
        """See `Attached`."""
        self.link.accept()
        self.is_accepted = True
        self._top_up()

    def on_delivery(self, delivery: Delivery) -> None:
        """See `Attached`."""
        begun = begin_request(self, delivery)
        if begun is None:
            self._top_up()
            return
        request, replies = begun
        kid = self.front.guard.unknown_key(_text_of(request.body))
        if kid is None:
            self._answer(request, replies)
        else:
            # At most as many as the link has credit: more is granted with each answer.
            self.front.tasks.start(self._answer_later(request, replies, kid))

    async def _answer_later(self, request: NodeRequest, replies: Replies, kid: str) -> None:
        await self.front.guard.find_key(kid)
        if self.link.is_open:
            self._answer(request, replies)
            self.client.flush()

    def _answer(self, request: NodeRequest, replies: Replies) -> None:
        try:
            self._put(request)
            response = NodeResponse(202, "Accepted")
        except Exception as error:
            response = refusal_response(self.client.refusal(error))
        replies.send(encode_response(response, request.id, NodeKind.TOKENS))
        replies.when_written(self._top_up)

    def _top_up(self) -> None:
        self.link.grant(_CREDIT)

    def _put(self, request: NodeRequest) -> None:
        if request.operation != PUT_TOKEN:
            raise AmqpRefused(NOT_IMPLEMENTED, 501, f"The operation {request.operation!r:.100} is unknown at $cbs.")
        token = _text_of(request.body)
        if token is None:
            raise BadRequest("The body of a put-token request is not a string.")
        # Ignore the declared type: azure-servicebus puts its shared access signatures as jwt.
        if not token.lower().startswith(TYPE.lower()) and not looks_like_jwt(token):
            raise AccessRefused(Reason.MALFORMED, _NO_TOKEN)
        audience = request.properties.get("name")
        path = node_of(audience).address.path if isinstance(audience, str) else ""
        if path and self.front.broker.catalogue.find(path) is None:
            grant = self.front.guard.verify(token, path)
            if grant.covers(path) and grant.rights_on(path):
                # Only a token about the entity tells whether it exists. With any other, the answer is that of an entity
                # that exists.
                raise NotFound(path)
        self.client.credentials.put(token, path)
        self._on_trusted()


def _text_of(body: object) -> str | None:
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    return text if isinstance(text, str) else None
