"""The events that `Connection.receive` returns, in the order of the peer's bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncebus.amqp.outcomes import AmqpError, DeliveryState

if TYPE_CHECKING:
    from oncebus.amqp.incoming import Delivery, IncomingLink
    from oncebus.amqp.link import Link
    from oncebus.amqp.outgoing import OutgoingDelivery, OutgoingLink
    from oncebus.amqp.session import Session


@dataclass(slots=True)
class SaslInit:
    """The peer chose one of the offered mechanisms. Nothing more is read until `Connection.answer_sasl` answers it.

    A peer that starts without SASL causes no such event. It is treated like one that chose ANONYMOUS.
    """

    mechanism: str
    response: bytes
    hostname: str | None = None


@dataclass(slots=True)
class Opened:
    """The peer sent its open (`Connection.remote_open`), and the answer is written."""


@dataclass(slots=True)
class SessionBegun:
    """The peer began a session, and the answer is written."""

    session: Session


@dataclass(slots=True)
class SessionEnded:
    """The session has ended. Events have already reported its links as detached.

    `error` was sent or caused by the peer.

    Comes once for each `SessionBegun`. After `Session.end` it comes once the peer has answered.
    """

    session: Session
    error: AmqpError | None


@dataclass(slots=True)
class LinkAttached:
    """The peer asks for a link (`link.attach`). Answer with `accept` or `refuse`, now or later."""

    link: Link


@dataclass(slots=True)
class LinkDetached:
    """The link has ended. `error` was sent or caused by the peer.

    It needs no answer, but the peer may still wait for settlements of an `OutgoingLink`: see its docstring.

    Comes once for each `LinkAttached`, including when its session or the connection ends, but not after `Link.detach`
    or `Link.refuse`. Without `closed`, the peer intends to attach again under the same name.
    """

    link: Link
    error: AmqpError | None
    closed: bool


@dataclass(slots=True)
class Delivered:
    """A complete delivery arrived, in one frame or several."""

    link: IncomingLink
    delivery: Delivery


@dataclass(slots=True)
class CreditChanged:
    """The peer changed its credit or drain, or the session's window or the output has room again.

    May come before the link is accepted, because peers grant their first credit without waiting. So check `sendable`
    and `drain` after `accept` too.
    """

    link: OutgoingLink


@dataclass(slots=True)
class Disposed:
    """The peer reports the outcome of deliveries of one link, in the order they were sent.

    If `settled`, they are no longer in `link.unsettled`. If not, the peer waits for `link.settle`. The peer may repeat
    a report.
    """

    link: OutgoingLink
    deliveries: list[OutgoingDelivery]
    state: DeliveryState | None
    settled: bool


@dataclass(slots=True)
class Closed:
    """Always the last event of a connection. `error` was sent or caused by the peer, or is None."""

    error: AmqpError | None


Event = (
    SaslInit
    | Opened
    | SessionBegun
    | SessionEnded
    | LinkAttached
    | LinkDetached
    | Delivered
    | CreditChanged
    | Disposed
    | Closed
)
