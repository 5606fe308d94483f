"""The record of refused requests."""

from __future__ import annotations

import logging

import pytest

from oncebus.broker.errors import ServerBusy
from oncebus.broker.refusals import MOST_RECORDS, TOGETHER, Refusal, Refusals, reason_of
from oncebus.broker.sending import MessageTooLarge
from oncebus.model.access import AccessRefused, Reason
from oncebus.model.entities import BadRequest, EntityDisabled, NotFound, QuotaExceeded

START = 1_790_000_000_000_000


class Now:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> int:
        return self.time


@pytest.fixture
def now() -> Now:
    return Now()


def test_refusals_for_one_reason_within_a_minute_are_one_record_and_one_line(
    now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = Refusals(now)
    with caplog.at_level(logging.INFO, "oncebus"):
        for number in range(1000):
            now.time = START + number
            refusals.note(1, "orders", ServerBusy(f"busy {number}"))
        refusals.note(1, "orders", QuotaExceeded("full"))
        now.time = START + TOGETHER
        refusals.note(1, "orders", ServerBusy("busy again"), 5)
    assert refusals.records(1) == [
        Refusal("busy", "busy 999", START, START + 999, 1000),
        Refusal("quota", "full", START + 999, START + 999),
        Refusal("busy", "busy again", START + TOGETHER, START + TOGETHER, 5),
    ]
    assert refusals.counts(1) == {"busy": 1005, "quota": 1}
    assert [record.__dict__["fields"]["reason"] for record in caplog.records] == ["busy", "quota", "busy"]


def test_the_record_is_bounded(now: Now) -> None:
    refusals = Refusals(now)
    for number in range(10 * MOST_RECORDS):
        now.time = START + number * TOGETHER
        refusals.note(1, "orders", BadRequest("x" * 100_000))
    kept = refusals.records(1)
    assert len(kept) == MOST_RECORDS
    assert kept[-1].first == now.time
    assert len(kept[-1].text) == 500
    assert refusals.counts(1) == {"invalid": 10 * MOST_RECORDS}


def test_an_entity_that_is_deleted_is_forgotten(now: Now) -> None:
    refusals = Refusals(now)
    for entity in (1, 2, None):
        refusals.note(entity, "orders", BadRequest("no"))
    refusals.forget([1])
    assert refusals.totals() == {(2, "invalid"): 1, (None, "invalid"): 1}
    assert [len(refusals.records(entity)) for entity in (1, 2, None)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AccessRefused(Reason.RIGHT, "no"), "unauthorized"),
        (ServerBusy("no"), "busy"),
        (QuotaExceeded("no"), "quota"),
        (MessageTooLarge("no"), "too-large"),
        (EntityDisabled("q"), "disabled"),
        (NotFound("q"), "not-found"),
        (BadRequest("no"), "invalid"),
        (KeyError("bug"), "failed"),
    ],
)
def test_the_reason_is_a_word(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
