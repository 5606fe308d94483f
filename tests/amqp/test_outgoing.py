from __future__ import annotations

import pytest

from oncebus.amqp.events import CreditChanged, LinkAttached
from oncebus.amqp.limits import ENOUGH
from oncebus.amqp.outgoing import NotSendable, OutgoingLink
from oncebus.amqp.performatives import Attach, Detach, Flow, Transfer
from oncebus.amqp.types import EncodeError
from tests.amqp.client import Client, Sent, credit, kinds, receiver, transfer
from tests.amqp.receiving import ready, sent_many


def assembled(sent: list[Sent]) -> bytes:
    assert all(isinstance(it.performative, Transfer) for it in sent)
    assert [it.performative.more for it in sent] == [True] * (len(sent) - 1) + [False]
    return b"".join(it.payload for it in sent)


def test_a_delivery_is_sent_with_all_its_fields() -> None:
    client, link = ready()
    delivery = link.send(b"payload", b"tag", settled=False, format=5, context="mine")
    assert (delivery.id, delivery.tag, delivery.context, delivery.link) == (0, b"tag", "mine", link)
    data = client.take()
    assert data[8:14] == b"\x00\x53\x14\xc0\x15\x0b"
    assert data.endswith(b"payload")
    client.connection.out.write(data)
    (sent,) = client.answers()
    assert sent.payload == b"payload"
    assert sent.performative == Transfer(
        handle=0, delivery_id=0, delivery_tag=b"tag", message_format=5, settled=False, more=False
    )
    assert link.unsettled == {0: delivery}
    assert link.credit == 9


def test_a_settled_delivery_is_not_remembered() -> None:
    client, link = ready()
    assert link.send(b"payload", b"", settled=True).settled
    assert client.answer(Transfer).settled is True
    assert link.unsettled == {}


def test_a_high_handle_is_written_in_full() -> None:
    client = Client(handle_max=1000)
    client.begin()
    for handle in range(300):
        client.do(receiver(f"r{handle}", handle))
    link = client.outgoing(5, name="last", handle=300)
    link.send(b"x", b"t", settled=True)
    assert client.answer(Transfer).handle == link.handle == 300
    client.do(credit(1, handle=300, echo=True))
    assert client.answer(Flow).handle == 300


def test_a_large_message_is_split_into_frames() -> None:
    client, link = ready(frame_size=512)
    payload = bytes(range(256)) * 40
    link.send(payload, b"tag", settled=False, format=3)
    data = client.take()
    sizes = []
    while data:
        sizes.append(int.from_bytes(data[:4], "big"))
        client.connection.out.write(data[: sizes[-1]])
        data = data[sizes[-1] :]
    assert set(sizes[:-1]) == {512}
    sent = client.answers()
    assert assembled(sent) == payload
    first, *others = [it.performative for it in sent]
    assert (first.delivery_id, first.delivery_tag, first.message_format) == (0, b"tag", 3)
    assert {(it.delivery_id, it.delivery_tag, it.message_format, it.settled) for it in others} == {
        (None, None, None, False)
    }
    assert link.session.outbound.next_transfer == len(sizes)
    assert link.session.outbound.next_delivery == 1


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_message_that_just_fits_is_one_frame(extra: int) -> None:
    client, link = ready(frame_size=512)
    link.send(b"x" * (512 - 33 + extra), b"tag", settled=True)
    sizes = [len(it.payload) for it in client.answers()]
    assert sizes == ([479, 1] if extra == 1 else [479 + extra])


def test_our_frames_are_no_larger_than_our_own_limit() -> None:
    client, link = ready(frame_size=2**32 - 1)
    link.send(bytes(200_000), b"tag", settled=True)
    sent = client.answers()
    assert len(sent) == 4
    assert len(assembled(sent)) == 200_000


def test_the_answer_to_a_drain_comes_after_all_earlier_deliveries() -> None:
    client, link = ready(10)
    other = client.outgoing(1, name="other", handle=1)
    for number in range(8):
        link.send(bytes(100_000), b"%d" % number, settled=True)
    client.do(credit(10, drain=True), credit(1, 1, drain=True))
    link.answer_drain()
    other.answer_drain()
    # It does not wait for the deliveries of other links.
    sent = client.answers()
    assert sent.pop().performative.handle == other.handle
    while link.session.outbound.room == 0:
        client.connection.relieve()
        sent += client.answers()
    flow = sent.pop().performative
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (link.handle, 10, 0, True)
    assert all(isinstance(it.performative, Transfer) for it in sent)
    assert [it.performative.more for it in sent] == [True, False] * 8


def test_an_answer_to_a_drain_that_waits_ends_with_the_link() -> None:
    client, link = ready(10, window=0)
    link.send(b"x", b"t", settled=True)
    client.do(credit(9, delivery_count=0, incoming_window=0, drain=True))
    link.answer_drain()
    assert client.take() == b""
    client.do(Detach(handle=0, closed=True))
    assert client.answer(Detach).closed
    client.do(credit(0, handle=None))
    assert client.take() == b""


def test_credit_changed_reports_that_waiting_answers_are_written_even_without_credit() -> None:
    client, link = ready(0, window=0)
    link.send(b"x" * 100, b"1", settled=True, beyond_credit=True)
    link.send(b"x" * 50, b"2", settled=True, beyond_credit=True)
    assert (link.waiting, client.connection.out.held) == (2, 150)
    assert client.do(credit(0, handle=None, incoming_window=1)) == []
    assert (link.waiting, client.connection.out.held) == (1, 50)
    assert client.do(credit(0, handle=None, incoming_window=5)) == [CreditChanged(link)]
    assert (link.waiting, client.connection.out.held) == (0, 0)
    assert client.do(credit(0, handle=None, incoming_window=0), credit(0, handle=None, incoming_window=9)) == []


def test_transfers_stop_at_the_peers_window_and_go_on_when_it_opens() -> None:
    client, link = ready(frame_size=512, window=3)
    payload = bytes(5000)
    link.send(payload, b"1", settled=True)
    assert link.sendable == 0
    second = link.send(b"second", b"2", settled=True)
    assert second.id == 1
    first_part = client.answers()
    assert len(first_part) == 3
    assert client.do(credit(10, next_incoming_id=3, incoming_window=2)) == [CreditChanged(link)]
    second_part = client.answers()
    assert len(second_part) == 2
    # Both transfers in flight count against the peer's new window.
    assert client.do(credit(0, handle=None, next_incoming_id=3, incoming_window=2)) == []
    assert client.answers() == []
    assert client.do(credit(0, handle=None, next_incoming_id=5, incoming_window=100)) == [CreditChanged(link)]
    rest = client.answers()
    assert assembled([*first_part, *second_part, *rest[:-1]]) == payload
    assert rest[-1].payload == b"second"
    assert link.sendable == 8


def test_the_window_wraps_around() -> None:
    client, link = ready(10, window=5)
    link.session.outbound.next_transfer = 2**32 - 2
    client.do(credit(10, next_incoming_id=2**32 - 2, incoming_window=5))
    sent_many(link, 4)
    assert link.sendable == 1
    client.do(credit(10, delivery_count=0, next_incoming_id=2**32 - 1, incoming_window=5))
    assert link.session.outbound.window == 2
    client.do(credit(10, delivery_count=0, next_incoming_id=2, incoming_window=5))
    assert link.session.outbound.window == 5


def test_a_window_that_counts_transfers_that_were_never_sent_is_capped_at_its_size() -> None:
    client, link = ready(10, window=5)
    client.do(credit(10, next_incoming_id=77, incoming_window=5))
    assert link.sendable == 5


def test_a_window_before_the_peer_has_seen_our_begin_counts_from_its_start() -> None:
    client, link = ready(10, window=5)
    sent_many(link, 2)
    client.do(credit(10, next_incoming_id=None, incoming_window=5))
    assert link.session.outbound.window == 3


def test_without_credit_nothing_is_sent() -> None:
    client, link = ready(1)
    assert link.sendable == 1
    link.send(b"x", b"1", settled=True)
    assert link.sendable == 0
    with pytest.raises(NotSendable, match=r"Nothing can be sent on the link 'r': it has no credit\."):
        link.send(b"x", b"2", settled=True)
    assert len(client.answers()) == 1


def test_an_answer_may_go_beyond_the_credit() -> None:
    client, link = ready(0)
    link.send(b"x", b"1", settled=True, beyond_credit=True)
    assert client.answer(Transfer).delivery_id == 0
    assert link.credit == 0
    client.do(credit(3, delivery_count=1))
    assert link.credit == 3


def test_nothing_is_sent_on_a_link_that_is_over() -> None:
    _, link = ready(1)
    link.detach()
    with pytest.raises(NotSendable, match=r"Nothing can be sent on the link 'r': it is not open\."):
        link.send(b"x", b"1", settled=True, beyond_credit=True)


def test_a_tag_that_is_too_long_is_refused_and_costs_no_credit() -> None:
    client, link = ready(5)
    with pytest.raises(EncodeError, match="delivery-tag cannot hold 33 bytes"):
        link.send(b"x", b"t" * 33, settled=False)
    assert link.credit == 5
    assert link.unsettled == {}
    assert link.send(b"x", b"t" * 32, settled=False).id == 0
    assert client.answer(Transfer).delivery_tag == b"t" * 32


def test_credit_given_before_the_link_is_accepted_counts() -> None:
    client = Client()
    client.begin()
    attached, changed = client.do(receiver(), credit(7, delivery_count=None))  # type: ignore[arg-type]
    assert isinstance(attached, LinkAttached)
    link = attached.link
    assert isinstance(link, OutgoingLink)
    assert changed == CreditChanged(link)
    assert link.sendable == 0
    link.accept()
    assert client.answer(Attach).initial_delivery_count == 0
    assert link.sendable == 7


def test_a_flow_that_crosses_deliveries_counts_them() -> None:
    client, link = ready(10)
    sent_many(link, 4)
    client.do(credit(10, delivery_count=1))
    assert link.credit == 7
    client.do(credit(10, delivery_count=1))
    assert link.credit == 7
    client.do(credit(10, delivery_count=4))
    assert link.credit == 10


def test_a_count_of_deliveries_that_were_never_sent_is_ignored() -> None:
    client, link = ready(10)
    client.do(credit(2**32 - 1, delivery_count=5, echo=True))
    assert link.credit == 2**32 - 1
    assert client.answer(Flow).link_credit == 2**32 - 1


def test_revoked_credit_is_lost() -> None:
    client, link = ready(10)
    sent_many(link, 3)
    client.do(credit(2, delivery_count=0))
    assert link.credit == 0


def test_delivery_counts_wrap_around() -> None:
    client, link = ready(10)
    link.delivery_count = 2**32 - 1
    client.do(credit(3, delivery_count=2**32 - 1))
    sent_many(link, 2)
    assert link.delivery_count == 1
    client.do(credit(3, delivery_count=0))
    assert link.credit == 2


def test_a_drain_uses_up_the_credit_and_reports_it() -> None:
    client, link = ready(10)
    sent_many(link, 3)
    client.take()
    assert client.do(credit(7, delivery_count=3, drain=True)) == [CreditChanged(link)]
    assert (link.credit, link.drain) == (7, True)
    link.send(b"last", b"t", settled=True)
    link.answer_drain()
    sent, flow = [it.performative for it in client.answers()]
    assert isinstance(sent, Transfer)
    assert (flow.delivery_count, flow.link_credit, flow.drain, flow.echo) == (10, 0, True, False)
    assert flow.next_outgoing_id == 4
    assert (link.credit, link.drain) == (0, False)


def test_a_drain_is_answered_once() -> None:
    client, link = ready(10)
    client.do(credit(10, drain=True))
    link.answer_drain()
    client.answer(Flow)
    link.answer_drain()
    assert not client.connection.has_output


def test_without_a_drain_the_credit_stays() -> None:
    client, link = ready(10)
    link.answer_drain()
    assert link.credit == 10
    assert not client.connection.has_output


def test_a_drain_of_no_credit_is_answered_too() -> None:
    client, link = ready(10)
    client.do(credit(0, drain=True))
    assert link.sendable == 0
    link.answer_drain()
    flow = client.answer(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


def test_a_repeated_flow_does_not_zero_the_credit() -> None:
    client, link = ready(10)
    for _ in range(3):
        client.do(credit(10))
        assert link.credit == 10
    client.do(credit(10, drain=True))
    link.answer_drain()
    client.take()
    # The peer continues to count from the end of the drain.
    for _ in range(2):
        client.do(credit(5, delivery_count=10))
        assert (link.credit, link.drain) == (5, False)


def test_an_echo_is_answered_with_the_credit() -> None:
    client, link = ready(10)
    sent_many(link, 1)
    client.take()
    assert client.do(credit(9, delivery_count=1, echo=True)) == [CreditChanged(link)]
    flow = client.answer(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain, flow.echo) == (1, 9, False, False)


def test_a_flow_without_credit_changes_none() -> None:
    client, link = ready(10)
    assert client.do(credit(None)) == []  # type: ignore[arg-type]
    assert link.credit == 10


def test_the_peer_cannot_send_on_a_link_that_it_receives_on() -> None:
    client, _ = ready()
    assert kinds(client.do(transfer())) == ["LinkDetached"]
    error = client.answer(Detach).error
    assert error is not None
    assert error.condition == "amqp:not-allowed"


def test_unwritten_deliveries_are_dropped_with_their_link() -> None:
    client, link = ready(frame_size=512, window=2)
    link.send(bytes(5000), b"1", settled=False)
    assert len(client.answers()) == 2
    link.detach()
    client.answer(Detach)
    client.do(credit(0, handle=None, next_incoming_id=2, incoming_window=100))
    assert client.answers() == []


def test_deliveries_wait_while_the_output_is_full() -> None:
    client, link = ready(1000)
    count = 0
    while link.sendable:
        link.send(bytes(1000), b"t", settled=True)
        count += 1
    assert ENOUGH / 1100 < count <= ENOUGH / 1000 + 1
    assert client.connection.relieve() == []
    client.take()
    assert link.sendable > 0
    assert client.connection.relieve() == [CreditChanged(link)]
    assert client.connection.relieve() == []


def test_a_large_message_is_written_piece_by_piece() -> None:
    client, link = ready()
    payload = bytes(3 * ENOUGH)
    link.send(payload, b"t", settled=True)
    pieces: list[Sent] = []
    while client.connection.has_output:
        data = client.take()
        assert len(data) < ENOUGH + 65536
        client.connection.out.write(data)
        pieces += client.answers()
        client.connection.relieve()
    assert assembled(pieces) == payload
    assert len(pieces) > 10


def test_while_the_peer_does_not_read_deliveries_wait_but_answers_do_not() -> None:
    client, link = ready(10)
    client.connection.pause()
    assert link.sendable == 0
    link.send(b"later", b"t", settled=True)
    assert client.do(credit(9, delivery_count=1, echo=True)) == [CreditChanged(link)]
    assert [type(it.performative) for it in client.answers()] == [Flow]
    assert client.connection.relieve() == []
    assert client.connection.resume() == [CreditChanged(link)]
    assert [it.payload for it in client.answers()] == [b"later"]
    assert link.sendable == 9
