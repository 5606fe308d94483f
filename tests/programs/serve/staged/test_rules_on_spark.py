"""Tests the rules of duplicate detection from HTTP through the pipeline on Spark to HTTP. See also `test_tiers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.programs.serve.stage import Stage

from .windows import QUEUES, Windows

DETECTS: dict[str, Any] = {"RequiresDuplicateDetection": True}
PARTED: dict[str, Any] = {**DETECTS, "EnablePartitioning": True}
LATER = "Mon, 21 Sep 2099 14:13:20 GMT"
LONGEST = "😀" * 64

Sent = dict[str, object]
"""The broker properties of a message. Its body is its index among the sent messages."""


class Case(NamedTuple):
    """Messages sent to a queue, or to a topic with these subscriptions, and the expected fate of each.

    A list in `sent` is one batch. `dropped` maps the index of each duplicate to that of its original. Messages that are
    not delivered, dropped or refused are scheduled.
    """

    says: str
    entity: dict[str, Any]
    sent: Sequence[Sent | list[Sent]]
    delivered: list[int]
    dropped: Mapping[int, int] = MappingProxyType({})
    refused: Sequence[int] = ()
    subscriptions: Sequence[str] = ()


def same(*identities: str) -> list[Sent | list[Sent]]:
    return [{"MessageId": identity} for identity in identities]


CASES = [
    Case("1: off by default", {}, same("a", "a"), [0, 1]),
    Case("1: chosen at creation", DETECTS, same("a", "a"), [0], {1: 0}),
    Case("1: a topic is checked once, before fan-out", DETECTS, same("a", "b", "a"), [0, 1], {2: 0}, (), ("x", "y")),
    Case("1: off by default for topics", {}, same("a", "a"), [0, 1], {}, (), ("x",)),
    Case("3: nothing but the key counts", DETECTS, [{"MessageId": "a"}, {"MessageId": "a", "Label": "l"}], [0], {1: 0}),
    Case("3: however often", DETECTS, same(*"abcabcaab"), [0, 1, 2], {3: 0, 4: 1, 5: 2, 6: 0, 7: 0, 8: 1}),
    Case(
        "5: a partition key is no part of the key",
        DETECTS,
        [{"MessageId": "a", "PartitionKey": key} for key in "pr"],
        [0],
        {1: 0},
    ),
    Case(
        "5: but on a partitioned entity it is",
        PARTED,
        [{"MessageId": "a", "PartitionKey": key} for key in "prp"],
        [0, 1],
        {2: 0},
    ),
    Case(
        "5: and a session is one",
        PARTED,
        [{"MessageId": "a", "SessionId": "s"}, {"MessageId": "a", "PartitionKey": "S"}, {"MessageId": "a"}],
        [0, 2],
        {1: 0},
    ),
    Case(
        "5: a session with another partition key is refused",
        PARTED,
        [{"MessageId": "a", "SessionId": "s", "PartitionKey": "p"}, {"MessageId": "a", "SessionId": "s"}],
        [1],
        {},
        [0],
    ),
    Case(
        "6: compared exactly, case included",
        DETECTS,
        same(
            "12345.2017/Payment", "12345.2017/payment", "12345.2017/Payment", "ödeme", "Ödeme", "o\u0308deme", "ödeme"
        ),
        [0, 1, 3, 4, 5],
        {2: 0, 6: 3},
    ),
    Case("6: at most 128 characters", DETECTS, same(LONGEST, LONGEST + "x", LONGEST, "x" * 129), [0], {2: 0}, [1, 3]),
    Case("6: a space counts", DETECTS, same("a", "a ", " a", "a"), [0, 1, 2], {3: 0}),
    Case("7: without an id never a duplicate", DETECTS, [{}, {}, {"MessageId": ""}], [0, 1, 2]),
    Case(
        "8: within a batch the first wins, and between batches",
        DETECTS,
        [[{"MessageId": "a"}, {"MessageId": "b"}, {"MessageId": "a"}], [{"MessageId": "c"}, {"MessageId": "b"}]],
        [0, 1, 3],
        {2: 0, 4: 1},
    ),
    Case(
        "8: a scheduled message takes part at once",
        DETECTS,
        [{"MessageId": "a", "ScheduledEnqueueTimeUtc": LATER}, {"MessageId": "a"}],
        [],
        {1: 0},
    ),
]


class Outcome(NamedTuple):
    """The outcome of a case. `drops` are the ids in the record of drops, each with the body of its original."""

    answers: list[int]
    arrived: dict[str, list[str]]
    drops: list[tuple[object, str | None]]
    counted: dict[str, int]


def test_what_is_a_duplicate(stage: Stage) -> None:
    """Send the messages of all cases before checking any, so that the test waits for Spark only once."""
    answers = {case.says: send(stage, case) for case in CASES}
    assert {case.says: outcome(stage, case, answers[case.says]) for case in CASES} == {
        case.says: expected(case) for case in CASES
    }


def name_of(case: Case) -> str:
    return f"case-{CASES.index(case)}"


def flat(case: Case) -> list[Sent]:
    return [each for sent in case.sent for each in (sent if isinstance(sent, list) else [sent])]


def send(stage: Stage, case: Case) -> list[int]:
    name = name_of(case)
    assert stage.client.put(name, case.entity, "Topic" if case.subscriptions else "Queue")[0] == 201
    for path in paths_of(case) if case.subscriptions else ():
        assert stage.client.put(path, kind="Subscription")[0] == 201
    answers, place = [], 0
    for sent in case.sent:
        batch = sent if isinstance(sent, list) else [sent]
        messages = [(str(place + at), properties) for at, properties in enumerate(batch)]
        if isinstance(sent, list):
            answers += [stage.client.send_batch(name, messages)] * len(batch)
        else:
            answers.append(stage.client.send_with(name, messages[0][0], **sent))
        place += len(batch)
    return answers


def paths_of(case: Case) -> list[str]:
    return [f"{name_of(case)}/subscriptions/{each}" for each in case.subscriptions] or [name_of(case)]


def outcome(stage: Stage, case: Case, answers: list[int]) -> Outcome:
    name, client = name_of(case), stage.client
    drops = client.drops(name)
    counted = {
        "new": client.metric("messages_new_total", entity=name),
        "duplicates": client.metric("messages_duplicates_total", entity=name),
        "scheduled": client.metric("messages", entity=name, state="scheduled"),
    }
    arrived = {path: client.receive_all(path) for path in paths_of(case)}
    numbers = {each["EnqueuedSequenceNumber"]: body for found in arrived.values() for each, body in found}
    return Outcome(
        answers,
        # There is no order between partitions.
        {path: sorted(body for _, body in found) for path, found in arrived.items()}
        if case.entity is PARTED
        else {path: [body for _, body in found] for path, found in arrived.items()},
        [(drop["messageId"], numbers.get(drop["original"]["sequenceNumber"])) for drop in drops],
        counted,
    )


def expected(case: Case) -> Outcome:
    sent = flat(case)
    accepted = len(sent) - len(case.refused) - len(case.dropped)
    return Outcome(
        [400 if place in case.refused else 201 for place in range(len(sent))],
        {path: list(map(str, case.delivered)) for path in paths_of(case)},
        [
            (sent[place]["MessageId"], str(won) if won in case.delivered else None)
            for place, won in case.dropped.items()
        ],
        {"new": accepted, "duplicates": len(case.dropped), "scheduled": accepted - len(case.delivered)},
    )


def test_rules_2_and_4_an_id_is_forgotten_after_its_window_and_the_shorter_window_counts(
    stage: Stage, windows: Windows
) -> None:
    arrived = {name: [body for _, body in stage.client.receive_all(name)] for name in QUEUES}
    assert arrived == {name: ["first"] for name in QUEUES}
    windows.send_after()
    for name, (_, _, is_forgotten) in QUEUES.items():
        drops = stage.client.drops(name)
        assert [body for _, body in stage.client.receive_all(name)] == (["after"] if is_forgotten else []), name
        assert len(drops) == (1 if is_forgotten else 2), name


def test_rule_1_detection_cannot_be_switched_on_or_off_later(stage: Stage) -> None:
    client = stage.client
    for name, detects in (("switched-on", False), ("switched-off", True)):
        assert client.put(name, {"RequiresDuplicateDetection": detects})[0] == 201
        status, text = client.put(name, {"RequiresDuplicateDetection": not detects}, update=True)
        assert (status, "RequiresDuplicateDetection" in text, "cannot be changed" in text) == (400, True, True)
        assert [client.send(name, "a", body) for body in ("first", "second")] == [201, 201]
        assert len(client.drops(name)) == detects


@pytest.mark.parametrize(("window", "status"), [("PT19.999S", 400), ("PT20S", 201), ("P7D", 201), ("P7DT1S", 400)])
def test_rule_2_a_window_is_between_20_seconds_and_7_days(stage: Stage, window: str, status: int) -> None:
    described = {**DETECTS, "DuplicateDetectionHistoryTimeWindow": window}
    answer, text = stage.client.put(f"window-{window}", described)
    assert answer == status, text


def test_rule_5_a_queue_that_is_deleted_and_created_again_remembers_nothing(stage: Stage) -> None:
    client = stage.client
    assert client.put("again", DETECTS)[0] == 201
    assert client.send("again", "a", "before") == 201
    assert client.delete("again") == 200
    assert client.send("again", "a", "between") == 404
    assert client.put("again", DETECTS)[0] == 201
    assert [client.send("again", "a", body) for body in ("after", "twice")] == [201, 201]
    assert len(client.drops("again")) == 1
    assert [body for _, body in client.receive_all("again")] == ["after"]
