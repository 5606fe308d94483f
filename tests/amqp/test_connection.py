from __future__ import annotations

import pytest

from oncebus.amqp.connection import Connection
from oncebus.amqp.encoding import encode
from oncebus.amqp.events import Closed, LinkAttached, LinkDetached, SessionBegun, SessionEnded
from oncebus.amqp.frames import AMQP_HEADER, HEARTBEAT, frame
from oncebus.amqp.limits import LONGEST_NAME, UNTRUSTED_LINKS, UNTRUSTED_SESSIONS
from oncebus.amqp.outcomes import Accepted, AmqpError
from oncebus.amqp.performatives import Begin, Close, Detach, Disposition, End, Open, Source, Target, encode_performative
from oncebus.amqp.types import Described, Symbol, ULong
from tests.amqp.client import BEGIN, OPEN, Client, credit, kinds, receiver, sender, transfer, written

ERROR = AmqpError("amqp:internal-error", "Words", {Symbol("detail"): 1})


def violation(client: Client) -> str:
    """Return the condition of the engine's close, which must be the same for the peer and in the event."""
    closed = client.events[-1]
    assert isinstance(closed, Closed)
    assert client.connection.is_closed
    last = client.answers()[-1].performative
    assert isinstance(last, Close)
    assert last.error is not None
    assert last.error == closed.error
    assert last.error.description
    return last.error.condition


FRAMING, DECODE, NOT_ALLOWED = "amqp:connection:framing-error", "amqp:decode-error", "amqp:not-allowed"
ANSWER = Begin(remote_channel=1, next_outgoing_id=0, incoming_window=1, outgoing_window=1)


def described(code: int, fields: object) -> bytes:
    return frame(0, encode(Described(ULong(code), fields)))


VIOLATIONS: list[tuple[str, bytes, str]] = [
    ("a frame shorter than its head", b"\x00\x00\x00\x07\x02\x00\x00\x00", FRAMING),
    ("a frame longer than allowed", b"\x00\x01\x00\x01\x02\x00\x00\x00", FRAMING),
    ("a body inside the head", b"\x00\x00\x00\x08\x01\x00\x00\x00", FRAMING),
    ("a body beyond the end of the frame", b"\x00\x00\x00\x08\x03\x00\x00\x00", FRAMING),
    ("a frame of SASL", b"\x00\x00\x00\x08\x02\x01\x00\x00", FRAMING),
    ("a frame of no known type", b"\x00\x00\x00\x08\x02\x07\x00\x00", FRAMING),
    ("a truncated body", frame(0, b"\x00\x53\x11\xc0\x05"), DECODE),
    ("a body without a descriptor", frame(0, encode([1])), DECODE),
    ("a body that is no performative", described(0x24, []), DECODE),
    ("an unknown performative", described(0x19, []), DECODE),
    ("fields that are a map", described(0x11, {}), DECODE),
    ("a mandatory field left out", described(0x11, [None]), DECODE),
    ("a field of a wrong type", described(0x11, [None, "0", 1, 1]), DECODE),
    ("a number out of its range", described(0x11, [None, -1, 1, 1]), DECODE),
    ("too many fields", described(0x17, [None, None]), DECODE),
    ("a source of another kind", described(0x12, ["n", 5, True, None, None, Described(ULong(0x29), [])]), DECODE),
    ("a truncated transfer", frame(0, b"\x00\x53\x14\xc0\x09\x01\x43"), DECODE),
    ("open twice", written(OPEN), NOT_ALLOWED),
    ("begin twice", written(BEGIN), NOT_ALLOWED),
    ("an answer to no begin", written(ANSWER, channel=9), NOT_ALLOWED),
    ("a channel above channel-max", written(BEGIN, channel=256), FRAMING),
    ("a handle above handle-max", written(sender(handle=256)), FRAMING),
    ("an attach without a session", written(sender(), channel=5), NOT_ALLOWED),
    ("a transfer without a session", written(transfer(), channel=5), NOT_ALLOWED),
    ("a flow without a session", written(credit(1), channel=5), NOT_ALLOWED),
    ("a disposition without a session", written(Disposition(role=True, first=0), channel=5), NOT_ALLOWED),
    ("an end without a session", written(End(), channel=5), NOT_ALLOWED),
]


@pytest.mark.parametrize(("sent", "condition"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation_closes_the_connection(sent: bytes, condition: str) -> None:
    client = Client()
    client.begin()
    client.incoming(name="link", handle=3)
    events = client.raw(sent + written(BEGIN, channel=7))
    assert kinds(events) == ["LinkDetached", "SessionEnded", "Closed"]
    assert violation(client) == condition
    assert client.raw(written(Close())) == []
    assert client.connection.end_lost() == []
    assert not client.connection.has_output


def test_a_max_frame_size_below_the_minimum_is_refused() -> None:
    client = Client(None)
    client.raw(AMQP_HEADER + written(Open(container_id="c", max_frame_size=511)))
    closed = client.events[-1]
    assert isinstance(closed, Closed)
    assert closed.error == AmqpError("amqp:invalid-field", "max-frame-size cannot be 511: the minimum is 512.")


def test_a_body_may_follow_an_extended_head() -> None:
    client = Client()
    body = encode_performative(BEGIN)
    events = client.raw((12 + len(body)).to_bytes(4, "big") + b"\x03\x00\x00\x04more" + body)
    assert kinds(events) == ["SessionBegun"]


def test_descriptors_may_be_numbers_of_any_form_or_symbols() -> None:
    client = Client()
    fields = b"\xc0\x0a\x04\x40\x43\x52\x05\x70\x00\x00\x00\x05"
    for channel, descriptor in enumerate([b"\x53\x11", b"\x80\0\0\0\0\0\0\0\x11", encode(Symbol("amqp:begin:list"))]):
        assert kinds(client.raw(frame(channel, b"\x00" + descriptor + fields))) == ["SessionBegun"]


def test_heartbeats_of_the_peer_cause_no_event() -> None:
    client = Client()
    assert client.raw(HEARTBEAT * 3) == []
    assert not client.connection.has_output


def test_each_session_is_answered_on_a_channel_of_ours() -> None:
    client = Client()
    for own, channel in enumerate((9, 4, 200)):
        (event,) = client.do(BEGIN, channel=channel)
        assert isinstance(event, SessionBegun)
        assert event.session.channel == own
        (sent,) = client.answers()
        assert sent.channel == own
        assert sent.performative.remote_channel == channel
        assert sent.performative.handle_max == 255
    client.do(End(), channel=4)
    client.answer(End)
    (event,) = client.do(BEGIN, channel=5)
    assert isinstance(event, SessionBegun)
    assert event.session.channel == 1


def test_a_peer_without_a_channel_left_for_us_is_closed() -> None:
    client = Client(Open(container_id="c", channel_max=0))
    client.begin(0)
    client.do(BEGIN, channel=1)
    assert violation(client) == "amqp:not-allowed"


def test_the_end_of_a_session_is_answered_and_reported_after_its_links() -> None:
    client = Client()
    session = client.begin()
    first, second = client.incoming(name="a", handle=0), client.outgoing(name="b", handle=1)
    events = client.do(End(error=ERROR))
    assert events == [LinkDetached(first, ERROR, True), LinkDetached(second, ERROR, True), SessionEnded(session, ERROR)]
    assert client.answer(End).error is None
    assert not first.is_open
    assert session.links == []


def test_a_detach_after_the_end_is_ignored() -> None:
    client = Client()
    client.begin()
    client.incoming()
    client.do(End())
    client.take()
    assert client.do(Detach(handle=0)) == []
    assert not client.connection.has_output
    assert kinds(client.do(BEGIN)) == ["SessionBegun"]


def test_a_session_that_is_ended_here_is_over_at_once_and_reported_when_the_peer_answers() -> None:
    client = Client()
    session = client.begin()
    link = client.outgoing()
    session.end(ERROR)
    assert client.answer(End).error == ERROR
    assert not link.is_open
    assert link.sendable == 0
    session.end()
    link.detach()
    assert not client.connection.has_output
    # The peer sent these before it received the end.
    assert client.do(credit(5), sender(handle=4), transfer(handle=4), Disposition(role=True, first=0)) == []
    assert client.do(End()) == [LinkDetached(link, None, True), SessionEnded(session, None)]
    assert not client.connection.has_output


def test_the_close_of_the_peer_is_answered_and_reported_last() -> None:
    client = Client()
    session = client.begin()
    link = client.incoming()
    assert client.do(Close(error=ERROR)) == [
        LinkDetached(link, ERROR, True),
        SessionEnded(session, ERROR),
        Closed(ERROR),
    ]
    assert client.answer(Close).error is None
    assert client.connection.is_closed
    assert client.do(BEGIN) == []
    assert client.connection.end_lost() == []


def test_a_close_of_ours_waits_for_the_peers() -> None:
    client = Client()
    session = client.begin()
    link = client.incoming()
    client.connection.close(ERROR)
    assert client.answer(Close).error == ERROR
    assert (client.connection.is_closing, client.connection.is_closed) == (True, False)
    client.connection.close()
    link.grant(1000)
    assert not client.connection.has_output
    assert client.do(transfer(), Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)) == []
    assert client.do(Close()) == [LinkDetached(link, None, True), SessionEnded(session, None), Closed(None)]
    assert client.connection.is_closed
    assert not client.connection.has_output


def test_a_lost_peer_is_reported_like_a_closed_one() -> None:
    client = Client()
    session = client.begin()
    link = client.outgoing()
    link.send(b"x", b"t", settled=False)
    assert client.connection.end_lost() == [LinkDetached(link, None, True), SessionEnded(session, None), Closed(None)]
    assert client.connection.end_lost() == []
    assert link.unsettled != {}
    assert session.outbound.unsettled == {}


def test_a_peer_that_is_not_trusted_has_few_sessions() -> None:
    client = Client(trusted=False)
    for channel in range(UNTRUSTED_SESSIONS):
        client.begin(channel)
    client.do(BEGIN, channel=UNTRUSTED_SESSIONS)
    assert violation(client) == "amqp:resource-limit-exceeded"


def test_a_peer_that_is_not_trusted_has_few_links() -> None:
    client = Client(trusted=False)
    session = client.begin()
    for handle in range(UNTRUSTED_LINKS):
        assert kinds(client.do(sender(str(handle), handle))) == ["LinkAttached"]
    client.do(Detach(handle=5, closed=True))
    assert kinds(client.do(sender("again", 5))) == ["LinkAttached"]
    assert len(session.links) == UNTRUSTED_LINKS
    client.take()
    # The connection closes: a refused link would stay until the peer answers.
    *_, ended, closed = client.do(sender("more", 40))
    assert kinds([ended, closed]) == ["SessionEnded", "Closed"]
    error = client.answer(Close).error
    assert error == AmqpError("amqp:resource-limit-exceeded", "The connection already has 32 links.")
    assert client.connection.link_count == 0


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_trusted_peer_may_have_as_many_links_as_configured(is_trusted: bool) -> None:
    client = Client(trusted=False, most_links=40)
    session = client.begin()
    if is_trusted:
        client.connection.trust()
    for handle in range(41):
        client.do(sender(str(handle), handle))
    assert client.connection.is_closed
    attached = [event for event in client.events if isinstance(event, LinkAttached)]
    assert len(attached) == (40 if is_trusted else UNTRUSTED_LINKS)
    assert session.links == []


def test_the_length_of_a_link_name_is_limited() -> None:
    client = Client()
    client.begin()
    client.do(sender("n" * LONGEST_NAME))
    assert not client.connection.is_closed
    client.do(sender("n" * (LONGEST_NAME + 1), 1))
    assert client.connection.is_closed


def test_after_the_answer_only_a_few_fields_of_an_attach_are_kept() -> None:
    client = Client()
    client.begin()
    junk: dict[Symbol, object] = {Symbol("junk"): [[]] * 500}
    fields = {"source": Source("a", filter=junk), "target": Target("b", dynamic_node_properties=junk)}
    (accepted,) = client.do(receiver("accepted", 0, properties=junk, **fields))
    (refused,) = client.do(receiver("refused", 1, properties=junk, **fields))
    assert isinstance(accepted, LinkAttached)
    assert isinstance(refused, LinkAttached)
    accepted.link.accept()
    refused.link.refuse(AmqpError("amqp:not-found"))
    assert accepted.link.attach == receiver("accepted", 0, source=Source("a"), target=Target("b"))
    assert refused.link.attach == receiver("refused", 1, source=None, target=None)
    # The answer still has all requested fields.
    answer = client.answers()[0].performative
    assert answer.source.filter == junk


def test_heartbeats_go_to_peers_that_ask_for_them() -> None:
    client = Client(Open(container_id="c", idle_time_out=30_000))
    connection = client.connection
    assert connection.tick(100.0) == 110.0
    assert not connection.has_output
    assert connection.tick(105.0) == 110.0
    # The open was written meanwhile, so no heartbeat is needed.
    assert connection.tick(110.0) == 120.0
    assert not connection.has_output
    assert connection.tick(120.5) == 130.5
    assert client.take() == HEARTBEAT


def test_no_gap_between_frames_is_longer_than_the_peers_time_out() -> None:
    client = Client(Open(container_id="c", idle_time_out=30_000))
    client.begin()
    connection = client.connection
    now, last, due = 0.0, 0.0, connection.tick(0.0)
    for step in range(200):
        assert due is not None
        if step % 7 == 3:
            # A frame is written right after a tick.
            now = due - 9.9
            client.do(credit(1, handle=None, echo=True))
        else:
            now = due
            due = connection.tick(now)
        if client.take():
            assert now - last < 30
            last = now
    assert last > 500


def test_no_heartbeats_go_to_peers_that_do_not_ask() -> None:
    assert Client().connection.tick(1.0) is None
    assert Client(Open(container_id="c", idle_time_out=0)).connection.tick(1.0) is None
    assert Connection(container_id="server").tick(1.0) is None


def test_heartbeats_have_a_shortest_interval() -> None:
    client = Client(Open(container_id="c", idle_time_out=1))
    assert client.connection.tick(1.0) == pytest.approx(1.1)


def test_an_error_that_does_not_fit_the_peers_frames_is_shortened() -> None:
    client = Client(Open(container_id="c", max_frame_size=512))
    session = client.begin()
    session.end(AmqpError("amqp:internal-error", "w" * 1000, {Symbol("detail"): "d" * 1000}))
    assert client.answer(End).error == AmqpError("amqp:internal-error", "w" * 100)


def test_an_answer_that_does_not_fit_the_peers_frames_closes_the_connection() -> None:
    client = Client(Open(container_id="c", max_frame_size=512))
    client.begin()
    (event,) = client.do(receiver(source=Source("q" * 300)))
    assert isinstance(event, LinkAttached)
    event.link.accept(properties={"p": "x" * 600})
    assert not event.link.is_open
    assert kinds(client.raw(b"")) == ["LinkDetached", "SessionEnded", "Closed"]
    assert violation(client) == "amqp:resource-limit-exceeded"


def test_methods_have_no_effect_after_the_end() -> None:
    client = Client()
    session = client.begin()
    incoming, outgoing = client.incoming(handle=0), client.outgoing(name="r", handle=1)
    sent = outgoing.send(b"x", b"t", settled=False)
    client.connection.end_lost()
    client.take()
    for link in (incoming, outgoing):
        link.accept()
        link.refuse(ERROR)
        link.detach()
    incoming.grant(1000)
    incoming.settle([], Accepted())
    outgoing.answer_drain()
    outgoing.settle([sent], Accepted())
    session.end()
    client.connection.close()
    client.connection.answer_sasl(True)
    assert not client.connection.has_output
    assert outgoing.sendable == 0
