"""The nine frame bodies of AMQP and the types in them, with the specification's fields and defaults.

`decode_performative` and `encode_performative` handle every encoding. `oncebus.amqp.fastread` and
`oncebus.amqp.fastwrite` are faster for the three that come with each message (transfer, disposition, flow) in the usual
encodings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oncebus.amqp.composites import (
    Binary,
    Bool,
    Fields,
    Name,
    Names,
    Text,
    Ubyte,
    Uint,
    Ulong,
    UnreadFields,
    UnreadMap,
    UnreadNames,
    Ushort,
    composite,
    from_described,
    to_bytes,
)
from oncebus.amqp.decoding import decode
from oncebus.amqp.limits import MOST_FRAME_ELEMENTS
from oncebus.amqp.outcomes import (
    Accepted,
    AmqpError,
    DeliveryState,
    Modified,
    ReceivedState,
    Rejected,
    Released,
)
from oncebus.amqp.sizes import Buffer
from oncebus.amqp.types import DecodeError, Described, Symbol

SENDER, RECEIVER = False, True
"""The `role` in attach and disposition: that of the side that writes the frame."""

UNSETTLED, SETTLED, MIXED = 0, 1, 2
"""Values of snd-settle-mode."""

FIRST, SECOND = 0, 1
"""Values of rcv-settle-mode."""

_SESSION_END = Symbol("session-end")


@composite(0x28, "source")
@dataclass(slots=True)
class Source:
    """The origin of a link's messages."""

    address: Text | None = None
    durable: Uint = 0
    expiry_policy: Name = _SESSION_END
    timeout: Uint = 0
    dynamic: Bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: Name | None = None
    filter: Fields | None = None
    default_outcome: Accepted | Rejected | Released | Modified | ReceivedState | Described | None = None
    outcomes: Names | None = None
    capabilities: Names | None = None


@composite(0x29, "target")
@dataclass(slots=True)
class Target:
    """The destination of a link's messages."""

    address: Text | None = None
    durable: Uint = 0
    expiry_policy: Name = _SESSION_END
    timeout: Uint = 0
    dynamic: Bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: Names | None = None


@composite(0x30, "coordinator")
@dataclass(slots=True)
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: Names | None = None


@composite(0x10, "open")
@dataclass(slots=True, kw_only=True)
class Open:
    """Opens the connection and describes the peer."""

    container_id: Text
    hostname: Text | None = None
    max_frame_size: Uint = 0xFFFFFFFF
    channel_max: Ushort = 0xFFFF
    idle_time_out: Uint | None = None
    outgoing_locales: UnreadNames | None = None
    incoming_locales: UnreadNames | None = None
    offered_capabilities: UnreadNames | None = None
    desired_capabilities: UnreadNames | None = None
    properties: UnreadFields | None = None


@composite(0x11, "begin")
@dataclass(slots=True, kw_only=True)
class Begin:
    """Begins a session, or answers a begin from `remote_channel`."""

    remote_channel: Ushort | None = None
    next_outgoing_id: Uint
    incoming_window: Uint
    outgoing_window: Uint
    handle_max: Uint = 0xFFFFFFFF
    offered_capabilities: UnreadNames | None = None
    desired_capabilities: UnreadNames | None = None
    properties: UnreadFields | None = None


@composite(0x12, "attach")
@dataclass(slots=True, kw_only=True)
class Attach:
    """Attaches a link to a session, or answers the attach of the same name."""

    name: Text
    handle: Uint
    role: Bool
    snd_settle_mode: Ubyte = MIXED
    rcv_settle_mode: Ubyte = FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: UnreadMap | None = None
    incomplete_unsettled: Bool = False
    initial_delivery_count: Uint | None = None
    max_message_size: Ulong | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: UnreadNames | None = None
    properties: Fields | None = None

    def bare(self, *, with_addresses: bool) -> Attach:
        """Return a copy with only the fields used after the answer, because many links may stay in memory for long."""
        keeps = with_addresses
        return Attach(
            name=self.name,
            handle=self.handle,
            role=self.role,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=Source(self.source.address) if keeps and self.source is not None else None,
            target=Target(self.target.address) if keeps and isinstance(self.target, Target) else None,
        )


@composite(0x13, "flow")
@dataclass(slots=True, kw_only=True)
class Flow:
    """The state of a session's windows and, with a handle, of a link's credit."""

    next_incoming_id: Uint | None = None
    incoming_window: Uint
    next_outgoing_id: Uint
    outgoing_window: Uint
    handle: Uint | None = None
    delivery_count: Uint | None = None
    link_credit: Uint | None = None
    available: Uint | None = None
    drain: Bool = False
    echo: Bool = False
    properties: UnreadFields | None = None


@composite(0x14, "transfer")
@dataclass(slots=True, kw_only=True)
class Transfer:
    """A delivery or a part of one. The payload follows it in the frame."""

    handle: Uint
    delivery_id: Uint | None = None
    delivery_tag: Binary | None = None
    message_format: Uint | None = None
    settled: Bool | None = None
    more: Bool = False
    rcv_settle_mode: Ubyte | None = None
    state: DeliveryState | None = None
    resume: Bool = False
    aborted: Bool = False
    batchable: Bool = False


@composite(0x15, "disposition")
@dataclass(slots=True, kw_only=True)
class Disposition:
    """Reports the state of the deliveries from `first` to `last`. `role` is the writer's role in them."""

    role: Bool
    first: Uint
    last: Uint | None = None
    settled: Bool = False
    state: DeliveryState | None = None
    batchable: Bool = False


@composite(0x16, "detach")
@dataclass(slots=True, kw_only=True)
class Detach:
    """Detaches a link. With `closed`, the link ends for good."""

    handle: Uint
    closed: Bool = False
    error: AmqpError | None = None


@composite(0x17, "end")
@dataclass(slots=True, kw_only=True)
class End:
    """Ends a session."""

    error: AmqpError | None = None


@composite(0x18, "close")
@dataclass(slots=True, kw_only=True)
class Close:
    """Closes the connection."""

    error: AmqpError | None = None


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
_PERFORMATIVES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)


def decode_performative(
    data: Buffer, offset: int, end: int, most_elements: int = MOST_FRAME_ELEMENTS
) -> tuple[Performative, int]:
    """Return the performative of the frame body from `offset` to `end`, and where its payload begins."""
    value, stop = decode(data, offset, end, most_elements=most_elements)
    made: Any = from_described(value, offset)
    if not isinstance(made, _PERFORMATIVES):
        raise DecodeError("performative", offset, f"{value!r:.100} is not a performative")
    return made, stop


def encode_performative(performative: Performative) -> bytes:
    """Return the encoding of a performative, with all its fields."""
    return to_bytes(performative)
