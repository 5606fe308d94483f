from __future__ import annotations

import pytest

from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, ReceivedState, Rejected, Released
from oncebus.amqp.types import Described, Symbol, ULong
from oncebus.engine.store import Action, Settlement
from oncebus.protocols.servicebus.dispositions import answer_to, settlement_of
from oncebus.protocols.servicebus.errors import AmqpRefused

TOKEN = bytes(16)
REASON, DESCRIPTION = Symbol("DeadLetterReason"), Symbol("DeadLetterErrorDescription")


@pytest.mark.parametrize(
    ("state", "settlement"),
    [
        (Accepted(), Settlement(Action.COMPLETE, TOKEN)),
        (Released(), Settlement(Action.RELEASE, TOKEN)),
        (Modified(), Settlement(Action.ABANDON, TOKEN)),
        (Modified(True, False), Settlement(Action.ABANDON, TOKEN)),
        (Modified(None, True), Settlement(Action.DEFER, TOKEN)),
        (
            Modified(None, True, {Symbol("seen"): 1}),
            Settlement(Action.DEFER, TOKEN, properties={"seen": 1}),
        ),
        (Rejected(), Settlement(Action.DEAD_LETTER, TOKEN)),
        (
            Rejected(AmqpError("com.microsoft:dead-letter", None, {REASON: "r", DESCRIPTION: "d", Symbol("n"): 1})),
            Settlement(Action.DEAD_LETTER, TOKEN, reason="r", description="d", properties={"n": 1}),
        ),
        (
            Rejected(AmqpError("com.microsoft:dead-letter", None, {REASON: None, DESCRIPTION: None})),
            Settlement(Action.DEAD_LETTER, TOKEN),
        ),
        (
            Rejected(AmqpError("com.microsoft:dead-letter", None, {REASON: 7, DESCRIPTION: True})),
            Settlement(
                Action.DEAD_LETTER, TOKEN, properties={"DeadLetterReason": 7, "DeadLetterErrorDescription": True}
            ),
        ),
        (
            Rejected(AmqpError("amqp:decode-error", "no JSON")),
            Settlement(Action.DEAD_LETTER, TOKEN, reason="amqp:decode-error", description="no JSON"),
        ),
        (None, None),
        (ReceivedState(0, 0), None),
    ],
)
def test_each_outcome_has_its_settlement(state: DeliveryState | None, settlement: Settlement | None) -> None:
    assert settlement_of(TOKEN, state, is_settled=False) == settlement


def test_settling_without_an_outcome_releases_the_message() -> None:
    assert settlement_of(TOKEN, None, is_settled=True) == Settlement(Action.RELEASE, TOKEN)


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(AmqpRefused, match="is not supported"):
        settlement_of(TOKEN, Described(ULong(0x99), []), is_settled=False)


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (Accepted(), Accepted()),
        (Released(), Released()),
        (Modified(True, True, {Symbol("a"): 1}), Modified(True, True)),
        (Rejected(AmqpError("com.microsoft:dead-letter")), Rejected()),
    ],
)
def test_the_answer_is_the_same_outcome_without_its_details(state: DeliveryState, answer: DeliveryState) -> None:
    assert answer_to(state) == answer
