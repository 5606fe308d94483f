"""What a peer has done, as `Connection.receive` tells it. The order is that of the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncebus.amqp.outcomes import AmqpError, Outcome

if TYPE_CHECKING:
    from oncebus.amqp.incoming import Delivery, IncomingLink
    from oncebus.amqp.link import Link
    from oncebus.amqp.outgoing import OutgoingDelivery, OutgoingLink
    from oncebus.amqp.session import Session


@dataclass(slots=True)
class SaslInit:
    """The peer has chosen one of the offered mechanisms. Answer with `Connection.answer_sasl`: nothing goes on before.

    A peer that begins without SASL never sends it: it is as anonymous as one that chose ANONYMOUS.
    """

    mechanism: str
    response: bytes
    hostname: str | None = None


@dataclass(slots=True)
class Opened:
    """The peer's open has come (`Connection.remote_open`) and is answered."""


@dataclass(slots=True)
class SessionBegun:
    """A session, already answered."""

    session: Session


@dataclass(slots=True)
class SessionEnded:
    """The session is over, and its links were reported detached before. `error` is the peer's, or of its making.

    Comes once for each SessionBegun; after `Session.end` once the peer has answered.
    """

    session: Session
    error: AmqpError | None


@dataclass(slots=True)
class LinkAttached:
    """The peer wants a link (`link.attach`). Answer with `accept` or `refuse`, now or later."""

    link: Link


@dataclass(slots=True)
class LinkDetached:
    """The link is over; nothing is left to answer but what `OutgoingLink` says of peers that detach while they wait
    for settlements. `error` is the peer's, or what it did wrong.

    Comes once for each LinkAttached, also when its session or the connection ends; not after `Link.detach` or
    `Link.refuse`. Without `closed` the peer means to attach again by the same name.
    """

    link: Link
    error: AmqpError | None
    closed: bool


@dataclass(slots=True)
class Delivered:
    """A whole delivery has come, in however many frames."""

    link: IncomingLink
    delivery: Delivery


@dataclass(slots=True)
class CreditChanged:
    """The peer has changed credit or drain, or there is room again in the session's window or in the output.

    May come before the link is accepted, as peers do not wait with their first credit: look at `sendable` and `drain`
    after `accept` too.
    """

    link: OutgoingLink


@dataclass(slots=True)
class Disposed:
    """What the peer says became of deliveries of one link, in the order they were sent.

    If `settled`, they are no longer in `link.unsettled`; if not, the peer waits for `link.settle`. It may say so again.
    """

    link: OutgoingLink
    deliveries: list[OutgoingDelivery]
    state: Outcome | None
    settled: bool


@dataclass(slots=True)
class Closed:
    """The last event of a connection, always. `error` is the peer's, or what it did wrong; else None."""

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
