"""The base class of links: the part that both directions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oncebus.amqp.conditions import DETACH_FORCED
from oncebus.amqp.events import LinkDetached
from oncebus.amqp.fastread import FlowFields, TransferFields
from oncebus.amqp.fastwrite import encode_uint, link_flow
from oncebus.amqp.outcomes import AmqpError
from oncebus.amqp.performatives import Attach, Coordinator, Detach, Source, Target
from oncebus.amqp.types import Symbol

if TYPE_CHECKING:
    from oncebus.amqp.connection import Connection
    from oncebus.amqp.session import Session

_ASKED, _OPEN, _DETACHED, _OVER = range(4)
"""Attached by the peer only; attached by both; detached by us only; detached by both."""


class Link:
    """A link that the peer has attached. No method has an effect once the link is over.

    `attach` is the peer's attach; after the answer it has only the few fields that are used later. `handle` is our
    handle. `context` is for the code that answers the link. Only the session calls methods that begin with `on_`.
    """

    __slots__ = (
        "_encoded_handle",
        "_state",
        "attach",
        "connection",
        "context",
        "credit",
        "delivery_count",
        "handle",
        "is_open",
        "largest_message",
        "name",
        "remote_handle",
        "session",
    )

    def __init__(self, session: Session, attach: Attach, handle: int) -> None:
        self.session = session
        self.connection: Connection = session.connection
        self.attach = attach
        self.name = attach.name
        self.handle = handle
        self.remote_handle = attach.handle
        self.is_open = False
        self.context: Any = None
        self.credit = 0
        self.delivery_count = 0
        self.largest_message = session.connection.largest_message
        self._encoded_handle = encode_uint(handle)
        self._state = _ASKED

    @property
    def properties(self) -> dict[Symbol, object]:
        """Return the properties of the peer's attach."""
        return self.attach.properties or {}

    @property
    def is_over(self) -> bool:
        """Return whether the link has ended, for any reason."""
        return self._state >= _DETACHED

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: dict[Any, object] | None = None,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
    ) -> None:
        """Accept the link and answer the attach.

        Arguments default to the peer's values; properties and capabilities default to none.

        `max_message_size` is announced to the peer and, if the peer sends, enforced. If the peer sends, it defaults to
        the connection's `largest_message`. If the peer receives, there is no default, and nothing is announced.
        """
        if self._state != _ASKED:
            return
        asked = self.attach
        self.largest_message = self.connection.largest_message if max_message_size is None else max_message_size
        self._write_attach(
            snd_settle_mode=asked.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
            rcv_settle_mode=asked.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
            source=asked.source if source is None else source,
            target=asked.target if target is None else target,
            max_message_size=max_message_size,
            offered_capabilities=None if offered_capabilities is None else [Symbol(it) for it in offered_capabilities],
            properties=properties,
        )
        self.attach = asked.bare(with_addresses=True)
        # An answer that does not fit the peer's frame size ends the connection, and the link with it.
        if self._state == _ASKED:
            self._state = _OPEN
            self.is_open = True

    def refuse(self, error: AmqpError) -> None:
        """Refuse the link: answer with an attach without target (if the peer sends) or source, then detach."""
        if self._state == _ASKED:
            self.detach(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """Detach the link, or refuse it if it was not accepted yet. No event of the link follows."""
        if self.is_over:
            return
        if self._state == _ASKED:
            self._write_refusal()
            self.attach = self.attach.bare(with_addresses=False)
            error = error or AmqpError(DETACH_FORCED, f"The link {self.name!r:.200} was refused.")
            closed = True
        self._end(_DETACHED)
        self._write_detach(error, closed)
        self.session.on_detached(self, error)

    def fail(self, condition: str, description: str) -> None:
        """Detach the link because of the peer's error, and report it as detached."""
        error = AmqpError(condition, description)
        self.detach(error)
        self.connection.report(LinkDetached(self, error, True))

    def on_detach(self, detach: Detach) -> None:
        """Handle a detach by the peer."""
        if self._state == _ASKED:
            # AMQP allows our detach only after our attach.
            self._write_refusal()
        if not self.is_over:
            self._end(_OVER)
            self._answer_detach(detach.closed)
            self.connection.report(LinkDetached(self, detach.error, detach.closed))
        self._state = _OVER

    def on_session_end(self) -> None:
        """End the link because its session has ended."""
        if not self.is_over:
            self._end(_OVER)

    def on_transfer(self, fields: TransferFields, payload: bytes) -> None:
        """Handle a transfer: a delivery or a part of one."""
        raise NotImplementedError

    def on_flow(self, fields: FlowFields) -> None:
        """Handle a flow that concerns this link."""
        raise NotImplementedError

    def write_flow(self, drain: bool = False) -> None:
        """Write the current credit to the peer."""
        self.session.write_flow(link_flow(self._encoded_handle, self.delivery_count, max(self.credit, 0), drain))

    def forget(self) -> None:
        """Release the resources of a link that is over."""
        raise NotImplementedError

    def _answer_detach(self, closed: bool) -> None:
        self._write_detach(None, closed)

    def _end(self, state: int) -> None:
        self._state = state
        self.is_open = False
        self.credit = 0
        self.forget()

    def _write_refusal(self) -> None:
        asked = self.attach
        self._write_attach(
            snd_settle_mode=asked.snd_settle_mode,
            rcv_settle_mode=asked.rcv_settle_mode,
            source=None if asked.role else asked.source,
            target=asked.target if asked.role else None,
        )

    def _write_attach(
        self,
        *,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        source: Source | None,
        target: Target | Coordinator | None,
        max_message_size: int | None = None,
        offered_capabilities: list[Symbol] | None = None,
        properties: dict[Any, object] | None = None,
    ) -> None:
        is_sender = self.attach.role
        if max_message_size is None and not is_sender:
            max_message_size = self.largest_message
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=not is_sender,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                source=source,
                target=target,
                initial_delivery_count=0 if is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                properties=properties,
            )
        )

    def _write_detach(self, error: AmqpError | None, closed: bool) -> None:
        self.session.write(Detach(handle=self.handle, closed=closed, error=error))
