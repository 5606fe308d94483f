"""A peer that reports outcomes and detaches before they are settled."""

from __future__ import annotations

from oncebus.amqp.events import Disposed, LinkAttached, LinkDetached
from oncebus.amqp.outcomes import Accepted, ReceivedState
from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.performatives import Attach, Detach, Disposition, End
from tests.amqp.client import Client, receiver
from tests.amqp.receiving import ready, sent_many

DISPOSED = Disposition(role=True, first=0, last=1, state=Accepted())
ANSWERED = Disposition(role=False, first=0, last=1, settled=True, state=Accepted())


def left() -> tuple[Client, OutgoingLink]:
    """Return a peer that reported outcomes for two of three deliveries and detached, and its link."""
    client, link = ready()
    deliveries = sent_many(link, 3)
    client.take()
    events = client.do(DISPOSED, Detach(handle=0, closed=True))
    assert events == [Disposed(link, deliveries[:2], Accepted(), False), LinkDetached(link, None, True)]
    return client, link


def test_the_settlements_come_before_the_answer_to_the_detach() -> None:
    client, link = left()
    deliveries = list(link.unsettled.values())
    assert client.take() == b""
    link.settle(deliveries[:1], Accepted())
    link.settle(deliveries[1:2], Accepted())
    assert [it.performative for it in client.answers()] == [ANSWERED, Detach(handle=0, closed=True)]
    link.settle(deliveries[2:], Accepted())
    link.finish()
    assert client.take() == b""


def test_deliveries_that_were_not_completely_written_are_reported_separately() -> None:
    client, link = ready(frame_size=512, window=3)
    whole = link.send(b"x", b"0", settled=False)
    disposed, partly = [link.send(bytes(600), b"%d" % number, settled=False) for number in (1, 2)]
    link.send(b"x", b"3", settled=True)
    last = link.send(b"x", b"4", settled=False)
    client.take()
    assert link.waiting == 3
    client.do(Disposition(role=True, first=whole.id, last=disposed.id, state=Accepted()))
    client.do(Detach(handle=0, closed=True))
    assert link.unsent == [partly, last]


def test_the_detach_is_answered_when_nothing_more_will_be_settled() -> None:
    client, link = left()
    link.finish()
    assert client.answer(Detach) == Detach(handle=0, closed=True)
    link.settle(list(link.unsettled.values()), Accepted())
    assert client.take() == b""


def test_our_handle_is_not_reused_before_the_answer() -> None:
    client, link = left()
    (event,) = client.do(receiver("another", 0))
    assert isinstance(event, LinkAttached)
    event.link.accept()
    assert client.answer(Attach).handle == 1
    link.finish()
    assert client.answer(Detach).handle == 0
    assert client.connection.link_count == 1


def test_after_the_end_of_the_session_the_detach_is_not_answered() -> None:
    client, link = left()
    client.do(End())
    assert client.answer(End) == End()
    link.settle(list(link.unsettled.values()), Accepted())
    link.finish()
    assert client.take() == b""


def test_a_detach_is_answered_at_once_if_the_peer_waits_for_nothing() -> None:
    client, link = ready()
    sent_many(link, 3)
    client.take()
    client.do(
        Disposition(role=True, first=0, state=Accepted()),
        Disposition(role=True, first=0, settled=True, state=Accepted()),
        Disposition(role=True, first=1, state=ReceivedState(0, 0)),
        Detach(handle=0, closed=True),
    )
    assert client.answer(Detach) == Detach(handle=0, closed=True)
