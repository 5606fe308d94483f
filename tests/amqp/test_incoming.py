from __future__ import annotations

from typing import Any

import pytest

from oncebus.amqp.events import Delivered, LinkDetached
from oncebus.amqp.incoming import Delivery, IncomingLink
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, Rejected, Released
from oncebus.amqp.performatives import Attach, Detach, Disposition, Flow, Transfer
from oncebus.amqp.types import Symbol
from tests.amqp.client import Client, credit, deliveries, frames, kinds, sender, transfer, written


def ready(grant: int = 10, **fields: Any) -> tuple[Client, IncomingLink]:
    client = Client()
    client.begin()
    return client, client.incoming(grant, **fields)


def detached(client: Client, link: IncomingLink) -> AmqpError:
    """Return the error of the engine's detach, which must be the same for the peer and in the event."""
    detach = client.answer(Detach)
    assert (detach.handle, detach.closed) == (link.handle, True)
    assert detach.error is not None
    assert client.events[-1] == LinkDetached(link, detach.error, True)
    assert not link.is_open
    assert client.connection.unfinished_bytes == 0
    return detach.error


def test_a_delivery_in_one_frame_is_delivered() -> None:
    client, link = ready()
    events = client.send(transfer(7, delivery_tag=b"tag", message_format=0x80013700), b"payload")
    assert events == [Delivered(link, Delivery(7, b"tag", 0x80013700, False, b"payload"))]
    assert type(deliveries(events)[0].payload) is bytes
    assert link.credit == 9


def test_a_delivery_without_a_payload_or_a_format_is_delivered() -> None:
    client, _ = ready()
    assert deliveries(client.do(Transfer(handle=0, delivery_id=1, delivery_tag=b""))) == [
        Delivery(1, b"", 0, False, b"")
    ]


def test_a_delivery_in_many_frames_is_put_together() -> None:
    client, link = ready()
    assert client.send(transfer(7, more=True), b"one ") == []
    assert client.send(transfer(None, delivery_tag=None, message_format=None, more=True), b"two ") == []
    assert client.send(transfer(7, more=True), b"") == []
    assert client.connection.unfinished_bytes == 8
    (event,) = client.send(Transfer(handle=0), b"three")
    assert event == Delivered(link, Delivery(7, b"t", 0, False, b"one two three"))
    assert client.connection.unfinished_bytes == 0
    assert link.credit == 9


def test_deliveries_of_two_links_may_come_interleaved() -> None:
    client, _ = ready()
    client.incoming(name="other", handle=1)
    client.send(transfer(0, 0, more=True), b"a")
    client.send(transfer(1, 1, more=True), b"x")
    assert [it.payload for it in deliveries(client.send(Transfer(handle=0), b"b"))] == [b"ab"]
    assert [it.payload for it in deliveries(client.send(Transfer(handle=1), b"y"))] == [b"xy"]


@pytest.mark.parametrize(
    ("mode", "first", "last", "settled"),
    [
        (2, None, None, False),
        (2, True, None, True),
        (2, None, True, True),
        (2, True, False, True),
        (1, None, None, True),
        (0, False, None, False),
    ],
)
def test_a_delivery_is_settled_by_any_frame_or_by_the_mode_of_its_link(
    mode: int, first: bool | None, last: bool | None, settled: bool
) -> None:
    client, _ = ready(snd_settle_mode=mode)
    client.send(transfer(0, settled=first, more=True), b"a")
    (delivery,) = deliveries(client.send(Transfer(handle=0, settled=last), b"b"))
    assert delivery.settled is settled


def test_an_aborted_delivery_is_forgotten_and_gives_its_credit_back() -> None:
    client, link = ready(10)
    client.send(transfer(0, more=True), b"a" * 1000)
    assert link.credit == 9
    assert client.send(Transfer(handle=0, aborted=True), b"ignored") == []
    flow = client.answer(Flow)
    assert (flow.delivery_count, flow.link_credit) == (1, 10)
    assert client.connection.unfinished_bytes == 0
    assert len(deliveries(client.do(transfer(1)))) == 1


def test_a_delivery_that_is_aborted_at_once_is_ignored() -> None:
    client, link = ready(10)
    assert client.do(transfer(0, aborted=True)) == []
    assert link.credit == 10
    assert not client.connection.has_output


def test_credit_is_granted_by_a_flow_and_used_by_deliveries() -> None:
    client, link = ready(2)
    client.do(transfer(0), transfer(1))
    assert link.credit == 0
    link.grant(5)
    flow = client.answer(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (link.handle, 2, 5)
    assert (flow.drain, flow.echo, flow.next_incoming_id) == (False, False, 2)


def test_credit_is_never_taken_back() -> None:
    client, link = ready(5)
    link.grant(3)
    link.grant(5)
    assert link.credit == 5
    assert not client.connection.has_output


def test_credit_counts_from_where_the_peer_says() -> None:
    client = Client()
    client.begin()
    link = client.incoming(2, initial_delivery_count=2**32 - 1)
    client.do(transfer(0), transfer(1))
    link.grant(2)
    assert client.answer(Flow).delivery_count == 1


def test_a_delivery_before_any_credit_detaches_the_link() -> None:
    client, link = ready(0)
    client.do(transfer())
    assert detached(client, link).condition == "amqp:link:transfer-limit-exceeded"


def test_a_delivery_before_the_link_is_accepted_detaches_it() -> None:
    client = Client()
    client.begin()
    assert kinds(client.do(sender(), transfer())) == ["LinkAttached", "LinkDetached"]
    attach, detach = [sent.performative for sent in client.answers()]
    assert isinstance(attach, Attach)
    assert attach.target is None
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"


def test_as_many_deliveries_as_were_granted_are_taken_beyond_the_credit() -> None:
    client, link = ready(3)
    received = client.do(*[transfer(number) for number in range(6)])
    assert len(deliveries(received)) == 6
    assert link.credit == -3
    client.do(credit(0, delivery_count=6, next_outgoing_id=6, echo=True))
    assert client.answer(Flow).link_credit == 0
    link.grant(3)
    assert client.answer(Flow).delivery_count == 6
    assert link.credit == 3
    client.do(*[transfer(number) for number in range(7)])
    assert detached(client, link).condition == "amqp:link:transfer-limit-exceeded"


def test_credit_that_the_peer_gives_up_is_lost() -> None:
    client, link = ready(10)
    client.do(credit(0, delivery_count=4, available=0))
    assert link.credit == 6
    link.grant(10)
    assert client.answer(Flow).delivery_count == 4


@pytest.mark.parametrize("delivery_count", [11, 2**32 - 1, None])
def test_an_impossible_delivery_count_is_ignored(delivery_count: int | None) -> None:
    client, link = ready(10)
    assert client.do(credit(3, delivery_count=delivery_count)) == []  # type: ignore[arg-type]
    assert link.credit == 10


def test_an_echo_is_answered_with_the_credit() -> None:
    client, link = ready(10)
    client.do(transfer(0), credit(0, delivery_count=1, next_outgoing_id=1, echo=True))
    flow = client.answer(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (link.handle, 1, 9)


def test_a_message_above_the_limit_detaches_its_link_alone() -> None:
    client, other = ready()
    (event,) = client.do(sender("small", 1))
    link = event.link  # type: ignore[union-attr]
    assert isinstance(link, IncomingLink)
    link.accept(max_message_size=100)
    link.grant(10)
    client.take()
    assert len(deliveries(client.send(transfer(0, 1), b"x" * 100))) == 1
    client.send(transfer(1, 1), b"x" * 101)
    error = detached(client, link)
    assert error.condition == "amqp:link:message-size-exceeded"
    assert error.description == (
        "The received message (size: 101 bytes) exceeds the limit (100 bytes) currently allowed on the link 'small'."
    )
    assert client.send(transfer(2, 1), b"under way") == []
    assert len(deliveries(client.send(transfer(3, 0), b"x" * 101))) == 1
    assert other.is_open


def test_a_message_above_the_limit_is_refused_before_it_is_complete() -> None:
    client = Client()
    client.connection.largest_message = 100
    client.begin()
    link = client.incoming()
    client.send(transfer(0, more=True), b"x" * 60)
    client.send(transfer(0, more=True), b"x" * 41)
    assert detached(client, link).condition == "amqp:link:message-size-exceeded"


def test_the_bytes_of_incomplete_deliveries_are_limited() -> None:
    client = Client(most_unfinished_bytes=100)
    client.begin()
    client.incoming(name="a", handle=0)
    link = client.incoming(name="b", handle=1)
    client.send(transfer(0, 0, more=True), b"x" * 60)
    client.send(transfer(1, 1, more=True), b"x" * 30)
    client.send(transfer(1, 1, more=True), b"x" * 11)
    detach = client.answer(Detach)
    assert detach.error is not None
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    assert client.connection.unfinished_bytes == 60
    assert not link.is_open
    assert [it.payload for it in deliveries(client.send(Transfer(handle=0), b"y"))] == [b"x" * 60 + b"y"]


def test_a_peer_that_is_not_trusted_has_little_room() -> None:
    client = Client(trusted=False)
    client.begin()
    link = client.incoming()
    for _ in range(6):
        client.send(transfer(0, more=True), b"x" * 10_000)
    assert client.connection.unfinished_bytes == 60_000
    client.send(transfer(0, more=True), b"x" * 10_000)
    assert detached(client, link).condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    "sent",
    [
        Transfer(handle=0, delivery_tag=b"t"),
        Transfer(handle=0, delivery_id=0),
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t" * 33),
    ],
    ids=["no id", "no tag", "a long tag"],
)
def test_a_delivery_needs_an_id_and_a_tag(sent: Transfer) -> None:
    client, link = ready()
    client.do(sent)
    assert detached(client, link).condition == "amqp:invalid-field"


def test_a_delivery_cannot_begin_inside_another() -> None:
    client, link = ready()
    client.send(transfer(0, more=True), b"x")
    client.do(transfer(1))
    assert detached(client, link).condition == "amqp:invalid-field"


@pytest.mark.parametrize("how", ["detach", "peer", "end"])
def test_an_incomplete_delivery_is_dropped_with_its_link(how: str) -> None:
    client, link = ready()
    client.send(transfer(0, more=True), b"x" * 1000)
    if how == "detach":
        link.detach()
    elif how == "peer":
        client.do(Detach(handle=0, closed=True))
    else:
        link.session.end()
    assert client.connection.unfinished_bytes == 0


@pytest.mark.parametrize(
    "outcome",
    [
        Accepted(),
        Released(),
        Modified(True, False, {Symbol("a"): 1}),
        Rejected(AmqpError("com.microsoft:server-busy", "Words", {Symbol("a"): "b"})),
        Rejected(AmqpError("com.microsoft:server-busy", "w" * 300)),
        Rejected(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_deliveries_are_settled_with_any_outcome(outcome: DeliveryState) -> None:
    client, link = ready()
    link.settle(deliveries(client.do(transfer(4))), outcome)
    assert client.answer(Disposition) == Disposition(role=True, first=4, last=4, settled=True, state=outcome)


def test_an_error_is_written_with_all_its_fields() -> None:
    client, link = ready()
    link.settle(deliveries(client.do(transfer(4))), Rejected(AmqpError("a:b")))
    assert b"\x00\x53\x1d\xc0\x08\x03\xa3\x03a:b\x40\x40" in client.take()


def test_consecutive_deliveries_are_settled_as_one_range() -> None:
    client, link = ready(20)
    received = deliveries(client.do(*[transfer(number) for number in range(12)]))
    link.settle([received[number] for number in (3, 4, 5, 7, 9, 10)], Accepted())
    assert [(it.performative.first, it.performative.last) for it in client.answers()] == [(3, 5), (7, 7), (9, 10)]


def test_settlements_one_by_one_are_one_range_too() -> None:
    client, link = ready(20)
    received = deliveries(client.do(*[transfer(number) for number in range(6)]))
    for number, is_accepted in enumerate([True, True, True, False, False, True]):
        link.settle([received[number]], Accepted() if is_accepted else Released())
    found = [it.performative for it in client.answers()]
    assert [(it.first, it.last, it.state) for it in found] == [
        (0, 2, Accepted()),
        (3, 4, Released()),
        (5, 5, Accepted()),
    ]


def test_settlements_keep_their_place_among_other_frames() -> None:
    client, link = ready(20)
    first, second = deliveries(client.do(transfer(0), transfer(1)))
    link.settle([first], Accepted())
    link.grant(30)
    link.settle([second], Accepted())
    link.detach()
    assert [type(it.performative) for it in client.answers()] == [Disposition, Flow, Disposition, Detach]


def test_settlements_of_two_sessions_are_not_mixed_up() -> None:
    client, one = ready()
    client.begin(1)
    other = client.incoming(channel=1)
    (first,) = deliveries(client.do(transfer(0)))
    (second,) = deliveries(client.do(transfer(1), channel=1))
    one.settle([first], Accepted())
    other.settle([second], Accepted())
    assert [(it.channel, it.performative.first) for it in client.answers()] == [(0, 0), (1, 1)]


def test_ranges_wrap_around() -> None:
    client, link = ready()
    received = deliveries(client.do(*[transfer(number % 2**32) for number in range(2**32 - 2, 2**32 + 2)]))
    link.settle(received[:2], Accepted())
    link.settle(received[2:], Accepted())
    (sent,) = client.answers()
    assert (sent.performative.first, sent.performative.last) == (2**32 - 2, 1)


def test_a_settled_delivery_is_not_settled_again() -> None:
    client, link = ready()
    link.settle(deliveries(client.do(transfer(0, settled=True))), Accepted())
    assert not client.connection.has_output


def test_dispositions_of_the_peers_own_deliveries_are_ignored() -> None:
    client, _ = ready()
    client.do(transfer(0))
    assert client.do(Disposition(role=False, first=0, settled=True, state=Accepted())) == []
    assert not client.connection.has_output


def test_a_thousand_messages_are_settled_in_one_frame() -> None:
    client, link = ready(1000)
    received = deliveries(client.raw(b"".join(written(transfer(number), b"body") for number in range(1000))))
    link.settle(received, Accepted())
    assert len(frames(client.take())) == 1
