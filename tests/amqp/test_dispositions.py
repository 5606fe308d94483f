from __future__ import annotations

from typing import Any

import pytest

from oncebus.amqp.events import Disposed
from oncebus.amqp.outcomes import Accepted, AmqpError, Modified, ReceivedState, Rejected, Released, TransactionalState
from oncebus.amqp.performatives import Detach, Disposition
from oncebus.amqp.types import Described, ULong
from tests.amqp.receiving import ready, sent_many

STATES = [
    Accepted(),
    Released(),
    Modified(True, None, None),
    Rejected(AmqpError("com.microsoft:dead-letter", None, {"DeadLetterReason": "r"})),  # type: ignore[dict-item]
    ReceivedState(1, 2),
    TransactionalState(b"tx"),
    TransactionalState(b"tx", Modified(None, True)),
    Described(ULong(0x99), [b"tx", None]),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("settled", [True, False])
def test_the_outcome_of_a_delivery_is_reported(state: Any, settled: bool) -> None:
    client, link = ready()
    (delivery,) = sent_many(link, 1)
    events = client.do(Disposition(role=True, first=0, settled=settled, state=state))
    assert events == [Disposed(link, [delivery], state, settled)]
    assert delivery.settled is settled
    assert (link.unsettled == {}) is settled
    client.take()
    link.settle([delivery], Accepted())
    assert client.connection.has_output is not settled
    assert link.unsettled == {}


def test_a_disposition_without_state_or_settlement_is_not_reported() -> None:
    client, link = ready()
    sent_many(link, 1)
    assert client.do(Disposition(role=True, first=0)) == []
    assert client.do(Disposition(role=False, first=0, settled=True, state=Accepted())) == []
    assert client.do(Disposition(role=True, first=5, settled=True, state=Accepted())) == []
    assert len(link.unsettled) == 1


def test_a_repeated_outcome_is_reported_once() -> None:
    client, link = ready()
    deliveries = sent_many(link, 4)
    report = Disposition(role=True, first=0, last=2, state=Accepted())
    assert client.do(report, report) == [Disposed(link, deliveries[:3], Accepted(), False)]
    more = Disposition(role=True, first=1, last=3, state=Released())
    assert client.do(more, more) == [Disposed(link, deliveries[3:], Released(), False)]
    # A peer that settles no longer waits for an answer.
    settled = Disposition(role=True, first=0, last=3, settled=True, state=Accepted())
    assert client.do(settled, settled) == [Disposed(link, deliveries, Accepted(), True)]


def test_a_delivery_may_be_settled_without_an_outcome() -> None:
    client, link = ready()
    deliveries = sent_many(link, 1)
    assert client.do(Disposition(role=True, first=0, settled=True)) == [Disposed(link, deliveries, None, True)]


def test_our_answer_has_the_same_range() -> None:
    client, link = ready(20)
    deliveries = sent_many(link, 10)
    client.take()
    (event,) = client.do(Disposition(role=True, first=2, last=6, state=Accepted()))
    assert event == Disposed(link, deliveries[2:7], Accepted(), False)
    assert list(link.unsettled) == list(range(10))
    link.settle(event.deliveries, Accepted())
    assert client.answer(Disposition) == Disposition(role=False, first=2, last=6, settled=True, state=Accepted())
    assert list(link.unsettled) == [0, 1, 7, 8, 9]
    link.settle(event.deliveries, Accepted())
    assert not client.connection.has_output


def test_a_range_over_several_links_is_reported_for_each() -> None:
    client, one = ready()
    other = client.outgoing(10, name="other", handle=1)
    sent = [link.send(b"x", b"t", settled=False) for link in (one, other, one, one, other)]
    events = client.do(Disposition(role=True, first=1, last=4, settled=True, state=Released()))
    assert events == [
        Disposed(other, [sent[1], sent[4]], Released(), True),
        Disposed(one, [sent[2], sent[3]], Released(), True),
    ]
    assert one.unsettled == {0: sent[0]}
    assert other.unsettled == {}


def test_a_range_over_all_numbers_costs_no_more_than_the_unsettled_deliveries() -> None:
    client, link = ready(10)
    deliveries = sent_many(link, 3)
    (event,) = client.do(Disposition(role=True, first=0, last=2**32 - 1, settled=True, state=Accepted()))
    assert event == Disposed(link, deliveries, Accepted(), True)


def test_ranges_wrap_around() -> None:
    client, link = ready(10)
    link.session.outbound.next_delivery = 2**32 - 2
    deliveries = sent_many(link, 5)
    assert [it.id for it in deliveries] == [2**32 - 2, 2**32 - 1, 0, 1, 2]
    (event,) = client.do(Disposition(role=True, first=2**32 - 1, last=1, settled=True, state=Accepted()))
    assert event == Disposed(link, deliveries[1:4], Accepted(), True)
    client.take()
    link.settle([deliveries[0], deliveries[4]], Accepted())
    assert [(it.performative.first, it.performative.last) for it in client.answers()] == [
        (2**32 - 2, 2**32 - 2),
        (2, 2),
    ]


def test_deliveries_of_a_detached_link_are_no_longer_the_sessions() -> None:
    client, link = ready()
    deliveries = sent_many(link, 2)
    client.do(Detach(handle=0, closed=True))
    client.take()
    assert list(link.unsettled.values()) == deliveries
    assert client.do(Disposition(role=True, first=0, last=1, settled=True, state=Accepted())) == []
    link.settle(deliveries, Accepted())
    assert not client.connection.has_output


def test_an_answer_without_settlement_lets_the_peer_report_another_outcome() -> None:
    client, link = ready()
    deliveries = sent_many(link, 2)
    provisional = TransactionalState(b"tx", Accepted())
    client.do(Disposition(role=True, first=0, last=1, state=provisional))
    client.take()
    link.answer(deliveries, provisional)
    assert [sent.performative for sent in client.answers()] == [
        Disposition(role=False, first=number, last=number, settled=False, state=provisional) for number in (0, 1)
    ]
    assert len(link.unsettled) == 2
    assert client.do(Disposition(role=True, first=0, last=1, state=Released())) == [
        Disposed(link, deliveries, Released(), False)
    ]
    link.settle(deliveries, TransactionalState(b"tx", Released()))
    answer = client.answer(Disposition)
    assert (answer.settled, answer.state) == (True, TransactionalState(b"tx", Released()))
    assert link.unsettled == {}


def test_an_answer_without_settlement_lets_a_leaving_peer_go() -> None:
    client, link = ready()
    (delivery,) = sent_many(link, 1)
    client.do(Disposition(role=True, first=0, state=TransactionalState(b"tx", Accepted())))
    client.do(Detach(handle=0, closed=True))
    client.take()
    link.answer([delivery], TransactionalState(b"tx", Accepted()))
    assert [type(sent.performative) for sent in client.answers()] == [Disposition, Detach]


def test_a_long_reason_in_a_transaction_is_shortened_for_small_frames() -> None:
    client, link = ready(frame_size=512)
    (delivery,) = sent_many(link, 1)
    client.do(Disposition(role=True, first=0, state=TransactionalState(b"tx", Accepted())))
    client.take()
    link.settle([delivery], TransactionalState(b"tx", Rejected(AmqpError("amqp:not-allowed", "x" * 1000))))
    state = client.answer(Disposition).state
    assert state == TransactionalState(b"tx", Rejected(AmqpError("amqp:not-allowed", "x" * 100)))
