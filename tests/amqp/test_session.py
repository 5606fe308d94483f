from __future__ import annotations

import pytest

from oncebus.amqp.encoding import encode
from oncebus.amqp.events import CreditChanged, Disposed, LinkAttached, LinkDetached, SessionEnded
from oncebus.amqp.frames import frame
from oncebus.amqp.limits import WINDOW
from oncebus.amqp.outcomes import AmqpError, Modified, Rejected, Released
from oncebus.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    encode_performative,
)
from oncebus.amqp.types import Symbol
from tests.amqp.client import BEGIN, Client, credit, deliveries, kinds, receiver, sender, transfer, written

ERROR = AmqpError("amqp:internal-error", "Words")

VIOLATIONS: list[tuple[str, Performative, str]] = [
    ("a transfer to no link", transfer(handle=9), "amqp:session:unattached-handle"),
    ("a flow to no link", credit(1, handle=9), "amqp:session:unattached-handle"),
    ("a handle in use", sender("other", 0), "amqp:session:handle-in-use"),
]


@pytest.mark.parametrize(("sent", "condition"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation_ends_the_session_and_no_other(sent: Performative, condition: str) -> None:
    client = Client()
    session = client.begin()
    client.begin(1)
    link = client.incoming()
    events = client.do(sent)
    error = client.answer(End).error
    assert error is not None
    assert error.condition == condition
    assert events == [LinkDetached(link, error, True), SessionEnded(session, error)]
    # Frames in flight are ignored until the peer answers.
    assert client.do(transfer(), credit(1, handle=7), Detach(handle=0)) == []
    assert client.do(End()) == []
    assert not client.connection.has_output
    assert kinds(client.do(BEGIN)) == ["SessionBegun"]
    assert kinds(client.do(sender(), channel=1)) == ["LinkAttached"]


def test_a_transfer_to_a_link_that_was_detached_with_an_error_has_its_own_condition() -> None:
    client = Client()
    client.begin()
    link = client.incoming()
    link.detach(ERROR)
    assert client.do(transfer()) == []
    client.do(Detach(handle=0, closed=True))
    client.take()
    client.do(transfer())
    error = client.answer(End).error
    assert error is not None
    assert error.condition == "amqp:session:errant-link"


def test_a_handle_of_an_errant_link_may_be_used_again() -> None:
    client = Client()
    client.begin()
    client.incoming().detach(ERROR)
    client.do(Detach(handle=0, closed=True))
    client.incoming()
    assert len(deliveries(client.do(transfer()))) == 1


def test_a_detach_of_no_link_is_ignored() -> None:
    client = Client()
    client.begin()
    assert client.do(Detach(handle=3)) == []
    assert not client.connection.has_output


def test_each_link_is_answered_on_a_handle_of_ours() -> None:
    client = Client()
    session = client.begin()
    for own, handle in enumerate((200, 3, 77)):
        (event,) = client.do(sender(f"link{handle}", handle))
        assert isinstance(event, LinkAttached)
        event.link.accept()
        answer = client.answer(Attach)
        assert (answer.name, answer.handle, event.link.handle) == (f"link{handle}", own, own)
    client.do(Detach(handle=3, closed=True))
    assert client.answer(Detach).handle == 1
    (event,) = client.do(sender("again", 5))
    assert isinstance(event, LinkAttached)
    assert event.link.handle == 1
    assert [link.name for link in session.links] == ["link200", "link77", "again"]


def test_a_peer_without_a_handle_left_for_us_loses_the_session() -> None:
    client = Client()
    client.begin(begin=Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9, handle_max=1))
    client.do(sender("a", 0), sender("b", 1))
    client.do(sender("c", 2))
    error = client.answer(End).error
    assert error == AmqpError("amqp:resource-limit-exceeded", "No handle is left below handle-max 1.")


def test_an_accepted_link_echoes_what_the_peer_asked_for() -> None:
    client = Client()
    client.begin()
    asked = receiver(
        "r",
        5,
        source=Source("queue", filter={"f": 1}),  # type: ignore[dict-item]
        target=Target("here"),
        snd_settle_mode=1,
        rcv_settle_mode=0,
        properties={"p": "q"},
    )
    (event,) = client.do(asked)
    assert isinstance(event, LinkAttached)
    assert event.link.attach == asked
    assert event.link.properties == {"p": "q"}
    event.link.accept()
    assert event.link.is_open
    answer = client.answer(Attach)
    assert (answer.source, answer.target) == (asked.source, asked.target)
    assert (answer.role, answer.snd_settle_mode, answer.rcv_settle_mode) == (False, 1, 0)
    assert (answer.initial_delivery_count, answer.max_message_size, answer.properties) == (0, None, None)


def test_an_accepted_link_has_the_given_fields() -> None:
    client = Client()
    client.begin()
    (event,) = client.do(sender())
    assert isinstance(event, LinkAttached)
    event.link.accept(
        source=Source("a"),
        target=Target("b"),
        properties={"com.microsoft:max-message-batch-size": 5},
        max_message_size=262_144,
        offered_capabilities=["c"],
        snd_settle_mode=0,
        rcv_settle_mode=1,
    )
    answer = client.answer(Attach)
    assert answer == Attach(
        name="s",
        handle=0,
        role=True,
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=Source("a"),
        target=Target("b"),
        max_message_size=262_144,
        offered_capabilities=["c"],  # type: ignore[list-item]
        properties={"com.microsoft:max-message-batch-size": 5},  # type: ignore[dict-item]
    )


def test_a_link_on_which_the_peer_sends_announces_the_largest_message() -> None:
    client = Client()
    client.connection.largest_message = 1234
    client.begin()
    (event,) = client.do(sender())
    assert isinstance(event, LinkAttached)
    event.link.accept()
    assert client.answer(Attach).max_message_size == 1234


@pytest.mark.parametrize("attach", [sender("x", 4), receiver("x", 4)], ids=["sender", "receiver"])
def test_a_refused_link_is_attached_without_its_end_here_and_detached(attach: Attach) -> None:
    client = Client()
    session = client.begin()
    (event,) = client.do(attach)
    assert isinstance(event, LinkAttached)
    event.link.refuse(AmqpError("amqp:not-found", "The queue 'queue' does not exist."))
    answer, detach = [sent.performative for sent in client.answers()]
    assert isinstance(answer, Attach)
    assert (answer.name, answer.handle, answer.role) == ("x", 0, not attach.role)
    assert (answer.source is None, answer.target is None) == (attach.role, not attach.role)
    assert detach == Detach(
        handle=0, closed=True, error=AmqpError("amqp:not-found", "The queue 'queue' does not exist.")
    )
    assert session.links == []
    event.link.accept()
    assert client.do(Detach(handle=4, closed=True)) == []
    assert not client.connection.has_output


def test_a_link_that_the_peer_detaches_before_it_is_answered_is_attached_and_detached() -> None:
    client = Client()
    client.begin()
    (event,) = client.do(receiver())
    assert isinstance(event, LinkAttached)
    assert client.do(Detach(handle=0, closed=True)) == [LinkDetached(event.link, None, True)]
    attach, detach = [sent.performative for sent in client.answers()]
    assert isinstance(attach, Attach)
    assert attach.source is None
    assert detach == Detach(handle=0, closed=True)
    event.link.accept()
    event.link.refuse(ERROR)
    assert not client.connection.has_output


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_of_the_peer_is_answered_in_kind(closed: bool) -> None:
    client = Client()
    client.begin()
    link = client.incoming()
    assert client.do(Detach(handle=0, closed=closed, error=ERROR)) == [LinkDetached(link, ERROR, closed)]
    assert client.answer(Detach) == Detach(handle=0, closed=closed)
    assert link.is_over
    assert kinds(client.do(sender())) == ["LinkAttached"]


def test_the_answer_to_our_detach_causes_no_event() -> None:
    client = Client()
    client.begin()
    link = client.outgoing()
    link.detach(ERROR)
    assert client.answer(Detach) == Detach(handle=0, closed=True, error=ERROR)
    assert client.do(credit(5), Disposition(role=True, first=0, state=Released())) == []
    assert client.do(Detach(handle=0, closed=True)) == []
    assert not client.connection.has_output


def test_a_link_may_be_detached_to_come_back() -> None:
    client = Client()
    client.begin()
    client.outgoing().detach(closed=False)
    assert client.answer(Detach) == Detach(handle=0, closed=False)


def test_the_incoming_window_is_reopened_in_time() -> None:
    client = Client()
    client.begin(begin=Begin(next_outgoing_id=10, incoming_window=9, outgoing_window=9))
    client.incoming(3 * WINDOW)
    assert client.raw(b"".join(written(transfer(n)) for n in range(WINDOW // 2))) != []
    assert not client.connection.has_output
    client.do(transfer(WINDOW // 2))
    flow = client.answer(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (10 + WINDOW // 2 + 1, WINDOW, None)
    received = client.raw(b"".join(written(transfer(n)) for n in range(WINDOW)))
    assert len(deliveries(received)) == WINDOW
    assert client.answer(Flow).next_incoming_id == 10 + WINDOW + WINDOW // 2 + 1


def test_any_flow_of_ours_reopens_the_window() -> None:
    client = Client()
    client.begin()
    link = client.incoming(10 * WINDOW)
    client.raw(b"".join(written(transfer(n)) for n in range(WINDOW // 2)))
    link.grant(20 * WINDOW)
    client.take()
    client.raw(b"".join(written(transfer(n)) for n in range(WINDOW // 2)))
    assert not client.connection.has_output


def test_more_transfers_than_the_window_end_the_session() -> None:
    client = Client()
    client.begin()
    client.incoming(3 * WINDOW)
    events = client.raw(b"".join(written(transfer(n)) for n in range(WINDOW + 1)))
    assert len(deliveries(events)) == WINDOW
    error = client.answer(End).error
    assert error is not None
    assert error.condition == "amqp:session:window-violation"


def test_transfer_numbers_wrap_around() -> None:
    client = Client()
    client.begin(begin=Begin(next_outgoing_id=2**32 - 1, incoming_window=9, outgoing_window=9))
    client.incoming()
    client.do(transfer(2**32 - 1), transfer(0), credit(0, handle=None, next_outgoing_id=1, echo=True))
    assert client.answer(Flow).next_incoming_id == 1


def test_an_echo_is_answered_with_the_windows() -> None:
    client = Client()
    client.begin()
    client.outgoing(2).send(b"x", b"t", settled=True)
    client.take()
    assert client.do(credit(0, handle=None, next_incoming_id=1, next_outgoing_id=5, echo=True)) == []
    flow = client.answer(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id) == (5, WINDOW, 1)
    assert (flow.handle, flow.echo, flow.drain) == (None, False, False)


def test_room_in_the_peers_window_is_reported_to_all_links_with_credit() -> None:
    client = Client()
    client.begin(begin=Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=9))
    first = client.outgoing(0, name="a", handle=0)
    second = client.outgoing(0, name="b", handle=1)
    third = client.outgoing(0, name="c", handle=2)
    for link in (first, second):
        client.do(credit(5, handle=link.remote_handle, incoming_window=1))
    assert (first.sendable, second.sendable, third.sendable) == (1, 1, 0)
    first.send(b"x", b"1", settled=True)
    assert (first.sendable, second.sendable, third.sendable) == (0, 0, 0)
    events = client.do(credit(0, handle=None, next_incoming_id=1, incoming_window=3))
    assert events == [CreditChanged(first), CreditChanged(second)]
    assert (first.sendable, second.sendable, third.sendable) == (3, 3, 0)


def test_outcomes_too_long_for_the_peers_frames_are_shortened() -> None:
    client = Client(Open(container_id="c", max_frame_size=512))
    client.begin()
    link = client.incoming()
    received = deliveries(client.do(transfer(7)))
    link.settle(received, Rejected(AmqpError("amqp:not-allowed", "w" * 600, {})))
    state = client.answer(Disposition).state
    assert state == Rejected(AmqpError("amqp:not-allowed", "w" * 100))
    link.settle(received, Modified(True, False, {Symbol("a"): "b" * 600}))
    assert client.answer(Disposition).state == Modified(True, False)


def test_frames_of_messages_are_read_whatever_their_descriptor() -> None:
    client = Client()
    client.begin()
    client.incoming(name="s", handle=0)
    outgoing = client.outgoing(1, name="r", handle=1)
    sent = outgoing.send(b"x", b"t", settled=False)

    def said(name: str, performative: Performative) -> bytes:
        body = encode_performative(performative)
        assert body[:2] == b"\x00\x53"
        return b"\x00" + encode(Symbol(f"amqp:{name}:list")) + body[3:]

    client.take()
    assert [it.payload for it in deliveries(client.raw(frame(0, said("transfer", transfer(5)) + b"body")))] == [b"body"]
    assert client.raw(frame(0, said("flow", credit(9, 1, delivery_count=1)))) == [CreditChanged(outgoing)]
    assert outgoing.credit == 9
    disposition = Disposition(role=True, first=0, settled=True, state=Released())
    assert client.raw(frame(0, said("disposition", disposition))) == [Disposed(outgoing, [sent], Released(), True)]


def test_links_come_and_go_without_a_trace() -> None:
    client = Client()
    session = client.begin()
    for number in range(2000):
        client.do(sender(f"link{number}", number % 3), Detach(handle=number % 3, closed=True))
        client.take()
    assert session.links == []
    assert session.link_count == 0
    assert client.connection.link_count == 0
