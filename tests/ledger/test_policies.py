"""Keeping the last row, and windows that duplicates extend, agree with the reference model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncebus.detection import NO_HORIZON, Policy, judge, recall_nothing
from oncebus.ledger import Ledger
from tests.histories import SECOND, START, Batch, histories, rows_of, split, verdicts_of
from tests.ledger.test_ledger_properties import eager, memory_folder, started
from tests.properties import search
from tests.reference import Message, Reference, Verdict

POLICIES = st.builds(Policy, keeps_last=st.booleans(), extends=st.booleans())


@given(batch=histories(most_batches=1, sizes=10, forgets=False, endless=True), policy=POLICIES)
@search(300)
def test_a_batch_alone(batch: list[Batch], policy: Policy) -> None:
    messages = batch[0].messages
    reference = Reference(keeps_last=policy.keeps_last, extends=policy.extends)
    expected = reference.batch(messages, batch[0].clock)
    assert verdicts_of(messages, judge(rows_of(messages), recall_nothing, NO_HORIZON, policy)) == expected


@given(
    history=histories(forgets=False, endless=True),
    lateness=st.sampled_from([0, 30 * SECOND]),
    policies=st.lists(POLICIES, min_size=14, max_size=14),
    repeatable=st.sampled_from([1, 2]),
    data=st.data(),
)
@search(50)
def test_a_history(
    history: list[Batch], lateness: int, policies: list[Policy], repeatable: int, data: st.DataObject
) -> None:
    """Each batch has its own policy, is repeated, and restarted; the ledger merges and forgets."""
    reference, start = Reference(lateness), 0
    with memory_folder() as folder, eager(repeatable, 2):
        ledger = Ledger.open(f"{folder}/ledger")
        for number, (batch, policy) in enumerate(zip(history, policies, strict=False)):
            reference.keeps_last, reference.extends = policy.keeps_last, policy.extends
            expected = reference.batch(batch.messages, batch.clock)
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                start += data.draw(st.integers(0, 1), label="restart")
                writer = started(ledger, start)
                found: dict[Message, Verdict] = {}
                for part, messages in enumerate(split(batch.messages, batch.parts)):
                    generation = ledger.join(writer, number)
                    if messages:
                        parts, rows = batch.parts, rows_of(messages, lateness)
                        verdicts = ledger.judge(
                            rows, generation, number, part=part, parts=parts, clock=batch.clock, policy=policy
                        )
                        found |= verdicts_of(messages, verdicts)
                        ledger.tidy(generation, number, part=part, parts=parts)
                assert found == expected


def test_a_duplicate_extends_the_window() -> None:
    window = 20 * SECOND
    messages = [Message("k", START + at * 15 * SECOND, at, window) for at in range(5)]
    messages.append(Message("k", START + 60 * SECOND + window, 5, window))
    for policy, wanted in [
        (Policy(), [False, True, False, True, False, False]),
        (Policy(extends=True), [False, True, True, True, True, False]),
        (Policy(keeps_last=True), [False, True, False, True, False, False]),
        (Policy(keeps_last=True, extends=True), [True, True, True, True, False, False]),
    ]:
        found = verdicts_of(messages, judge(rows_of(messages), recall_nothing, NO_HORIZON, policy))
        assert [found[message].is_duplicate for message in messages] == wanted
