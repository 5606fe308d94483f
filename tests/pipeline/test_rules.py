from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.types import Timestamp
from oncebus.model.entities import (
    CorrelationFilter,
    FalseFilter,
    FilterValue,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from oncebus.model.messages import LogRow
from oncebus.pipeline.rules import FILTER_FAILED, NO_SESSION, RoutedCopy, Routes, copies_of
from tests.pipeline.judged_rows import QUEUE, START, TOPIC, catalogue, head, row

SECOND = 1_000_000


def made_by(rules: list[Rule], message: LogRow, **properties: Any) -> list[RoutedCopy]:
    targets = Routes(catalogue(rules, **properties)).targets(TOPIC)
    assert targets is not None
    return copies_of(message, targets)


def test_only_a_topic_has_targets_and_only_a_queue_is_a_queue() -> None:
    routes = Routes(catalogue([Rule()], [Rule()]))
    assert [routes.is_queue(each) for each in (QUEUE, TOPIC, 3, 99)] == [True, False, False, False]
    assert routes.targets(QUEUE) is None
    assert routes.targets(99) is None
    targets = routes.targets(TOPIC)
    assert targets is not None
    assert [target.id for target in targets] == [3, 4]
    assert routes.targets(TOPIC) is targets


@pytest.mark.parametrize(
    ("rules", "takes_all"),
    [
        ([Rule()], True),
        ([Rule("named", TrueFilter())], True),
        ([], False),
        ([Rule(), Rule("two")], False),
        ([Rule("one", TrueFilter(), SqlAction("SET a = 1"))], False),
        ([Rule("one", SqlFilter("1=1"))], False),
        ([Rule("one", FalseFilter())], False),
    ],
)
def test_subscriptions_that_take_all_do_not_read_the_message(rules: list[Rule], takes_all: bool) -> None:
    targets = Routes(catalogue(rules)).targets(TOPIC)
    assert targets is not None
    assert [target.takes_all for target in targets] == [takes_all]
    # A message that no filter reads may be broken.
    if takes_all:
        assert copies_of(row(1, head=b"\xff"), targets) == [RoutedCopy(3)]


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("sys.MessageId = 'm1'", True),
        ("sys.Label = 'red' AND sys.To = 'there'", True),
        ("sys.SessionId = 's' AND sys.PartitionKey = 's'", True),
        ("sys.SequenceNumber = 1 AND sys.Size = 100", True),
        ("sys.EnqueuedTimeUtc = @time AND sys.ExpiresAtUtc > @time", True),
        ("sys.TimeToLive = @minute", True),
        ("user.n = 5 AND moment = @time", True),
        ("missing IS NULL", True),
        ("n = 6", False),
        ("missing = 1", False),
    ],
)
def test_a_filter_sees_the_properties_of_a_row(expression: str, matches: bool) -> None:
    # Message times have milliseconds.
    time = START
    parameters: tuple[tuple[str, FilterValue], ...] = (
        ("@time", datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)),
        ("@minute", timedelta(minutes=1)),
    )
    values = row(
        1,
        time=time,
        session="s",
        partition_key="s",
        expires=time + 60 * SECOND,
        head=head({"n": 5, "moment": Timestamp(time // 1000)}, subject="red", to="there"),
    )
    used = tuple(each for each in parameters if each[0] in expression)
    found = made_by([Rule("r", SqlFilter(expression, used))], values)
    assert [made.destination for made in found] == ([3] if matches else [])


@pytest.mark.parametrize(
    "value",
    ["text", True, 5, 2.5, b"bytes", uuid.UUID(int=5), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)],
)
def test_a_correlation_filter_compares_values_of_every_type(value: FilterValue) -> None:
    as_sent: object = value
    if isinstance(value, datetime):
        as_sent = Timestamp(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000))
    rule = Rule("c", CorrelationFilter(properties=(("x", value),)))
    assert len(made_by([rule], row(1, head=head({"x": as_sent})))) == 1
    assert made_by([rule], row(1, head=head({"x": "other"}))) == []


def changed(action: str, **values: Any) -> dict[str, object]:
    [made] = made_by([Rule("r", TrueFilter(), SqlAction(action))], row(1, **values))
    assert made.reason is None
    return dict(made.changes)


def test_an_action_changes_the_head_and_the_matching_columns() -> None:
    changes = changed(
        "SET sys.MessageId = 'new'; SET sys.SessionId = 's2'; SET sys.PartitionKey = 's2'; SET sys.Label = 'blue';"
        " SET a = 1; REMOVE b",
        head=head({"a": "old", "b": 2, "c": 3}, message_id="m1", group_id="s", subject="red"),
        session="s",
    )
    made = changes.pop("head")
    assert isinstance(made, bytes)
    properties = amqp.properties(made)
    assert (properties.message_id, properties.group_id, properties.subject) == ("new", "s2", "blue")
    assert dict(amqp.application_properties(made)) == {"a": 1, "c": 3, "RuleName": "r"}
    before = head({"a": "old", "b": 2, "c": 3}, message_id="m1", group_id="s", subject="red")
    assert changes == {
        "message_id": "new",
        "session": "s2",
        "partition_key": "s2",
        "size": 100 + len(made) - len(before),
    }


@pytest.mark.parametrize(
    ("time_to_live", "expires"),
    [
        (timedelta(seconds=5), START + 1 + 5 * SECOND),
        (timedelta.max, None),
    ],
)
def test_an_action_may_change_the_time_to_live(time_to_live: timedelta, expires: int | None) -> None:
    action = SqlAction("SET sys.TimeToLive = @t", (("@t", time_to_live),))
    [made] = made_by([Rule("r", TrueFilter(), action)], row(1, expires=START + SECOND))
    assert made.changes["expires"] == expires


@pytest.mark.parametrize(
    ("own", "default", "expected"), [(None, 10, 10), (5, 10, 5), (20, 10, 10), (20, None, "unchanged")]
)
def test_a_subscription_may_shorten_the_time_to_live(own: int | None, default: int | None, expected: object) -> None:
    properties = {} if default is None else {"default_message_time_to_live": default * SECOND}
    expires = None if own is None else START + 1 + own * SECOND
    for rule in (Rule(), Rule("sql", SqlFilter("1=1")), Rule("set", TrueFilter(), SqlAction("SET a = 1"))):
        [made] = made_by([rule], row(1, expires=expires), **properties)
        found = made.changes.get("expires", "unchanged")
        assert found == (START + 1 + expected * SECOND if isinstance(expected, int) else expected)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(
    ("rule", "user", "text"),
    [
        (Rule("bad", SqlFilter("1 / n = 1")), {"n": 0}, "The filter of rule 'bad' failed"),
        (Rule("bad", TrueFilter(), SqlAction("SET a = 1 / n")), {"n": 0}, "The action of rule 'bad' failed"),
    ],
)
def test_a_rule_that_fails_makes_a_dead_letter_if_the_subscription_says_so(
    rule: Rule, user: dict[str, object], text: str, keeps: bool
) -> None:
    found = made_by(
        [rule, Rule("good", SqlFilter("1=1"))],
        row(1, head=head(user)),
        dead_lettering_on_filter_evaluation_exceptions=keeps,
    )
    assert found[0] == RoutedCopy(3)
    assert [made.reason for made in found[1:]] == [FILTER_FAILED] * keeps
    assert all(text in (made.description or "") for made in found[1:])


def test_a_change_that_cannot_be_encoded_fails_only_its_rule() -> None:
    # A lone surrogate cannot be encoded.
    action = SqlAction("SET b = @p", (("@p", "\ud800"),))
    rules = [Rule("plain", SqlFilter("1=1")), Rule("change", TrueFilter(), action)]
    found = made_by(rules, row(1))
    assert [made.reason for made in found] == [None, FILTER_FAILED]


@pytest.mark.parametrize(
    ("session", "rule", "is_dead"),
    [
        (None, Rule(), True),
        ("", Rule(), False),
        ("s", Rule(), False),
        (None, Rule("set", TrueFilter(), SqlAction("SET sys.SessionId = 's'")), False),
        ("s", Rule("unset", TrueFilter(), SqlAction("REMOVE sys.SessionId")), True),
    ],
)
def test_a_subscription_with_sessions_takes_no_copy_without_one(session: str | None, rule: Rule, is_dead: bool) -> None:
    [made] = made_by([rule], row(1, session=session), requires_session=True)
    assert made.reason == (NO_SESSION if is_dead else None)
