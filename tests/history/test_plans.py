"""A seed determines the plans of clients and faults, so that a history can be replayed."""

from __future__ import annotations

from itertools import islice

import pytest

from . import faults, operations
from .operations import (
    Cancel,
    ChangeRule,
    ChangeWindow,
    Forget,
    Receive,
    ReceiveDeferred,
    Recreate,
    Resubmit,
    Send,
    Step,
    Transact,
)


def steps(seed: int, client: str) -> list[Step]:
    return list(islice(operations.plan(seed, client), 2000))


@pytest.mark.parametrize("client", operations.CLIENTS)
def test_a_seed_always_gives_the_same_plan_and_another_seed_a_different_one(client: str) -> None:
    assert steps(7, client) == steps(7, client) != steps(8, client)


def test_a_seed_always_gives_the_same_faults_and_another_seed_different_ones() -> None:
    assert faults.plan(7, "40") == faults.plan(7, "40") != faults.plan(8, "40")
    assert [fault.kind for fault in faults.plan(7, "kill gateway, cut after")] == ["kill gateway", "cut after"]


def test_every_kind_of_step_action_and_fault_occurs() -> None:
    done = [step for client in operations.CLIENTS for step in steps(7, client)]
    kinds = {Send, Transact, Receive, Cancel, ReceiveDeferred, Resubmit, ChangeWindow, Forget, ChangeRule, Recreate}
    assert kinds <= {type(step) for step in done}
    actions = {action for step in done if isinstance(step, Receive) for action in step.actions}
    assert actions == {"complete", "abandon", "defer", "dead-letter", "renew"}
    sent = [step for step in done if isinstance(step, Send)]
    assert any(len(step.messages) > 1 for step in sent)
    assert any(message.due is not None for step in sent for message in step.messages)
    assert {fault.kind for fault in faults.plan(7, "40")} == set(faults.KINDS)
