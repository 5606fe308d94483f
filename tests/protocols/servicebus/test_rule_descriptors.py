from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from oncebus.amqp.decoding import decode
from oncebus.amqp.encoding import encode
from oncebus.amqp.types import Byte, Described, Float, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from oncebus.model.entities import (
    BadRequest,
    Catalogue,
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from oncebus.model.entities.catalogue_json import catalogue_from_json, catalogue_to_json
from oncebus.protocols.servicebus.rules import describe_rule, rule_of


def on_the_wire(value: Any) -> Any:
    return decode(encode(value))[0]


def test_a_sql_rule_is_read_from_a_map() -> None:
    given = on_the_wire({"sql-filter": {"expression": "price > 1"}, "sql-rule-action": {"expression": "SET a = 1"}})
    assert rule_of("r", given) == Rule("r", SqlFilter("price > 1"), SqlAction("SET a = 1"))


def test_a_correlation_rule_is_read_with_nulls_and_properties_of_any_type() -> None:
    properties = {
        "text": "red",
        "whole": Int(5),
        "long": 1 << 40,
        "float": Float(0.5),
        "flag": True,
        "id": UUID(int=3),
        "bytes": b"\x00",
        "when": Timestamp(1000),
        "span": Described(Symbol("com.microsoft:timespan"), 20_000_000),
        "date": Described(Symbol("com.microsoft:datetime-offset"), 621_355_968_000_000_000),
        "uri": Described(Symbol("com.microsoft:uri"), "http://x"),
    }
    given = {"correlation-filter": {"correlation-id": "c", "to": None, "label": "l", "properties": properties}}
    rule = rule_of("r", on_the_wire(given))
    assert rule.action is None
    assert rule.filter == CorrelationFilter(
        correlation_id="c",
        label="l",
        properties=(
            ("text", "red"),
            ("whole", 5),
            ("long", 1 << 40),
            ("float", 0.5),
            ("flag", True),
            ("id", UUID(int=3)),
            ("bytes", b"\x00"),
            ("when", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ("span", timedelta(seconds=2)),
            ("date", datetime(1970, 1, 1, tzinfo=UTC)),
            ("uri", "http://x"),
        ),
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "rule-description"),
        ({}, "sql-filter"),
        ({"sql-filter": {"expression": "1=1"}, "correlation-filter": {}}, "sql-filter"),
        ({"sql-filter": "1=1"}, "sql-filter"),
        ({"sql-filter": {}}, "expression"),
        ({"correlation-filter": {"to": 5}}, "to"),
        ({"correlation-filter": {"properties": []}}, "properties"),
        ({"correlation-filter": {"properties": {"p": [1]}}}, "p"),
        ({"correlation-filter": {"properties": {"p": Timestamp(1 << 62)}}}, "p"),
    ],
)
def test_an_invalid_rule_is_refused_with_the_name_of_the_argument(given: Any, named: str) -> None:
    with pytest.raises(BadRequest, match=f"'{named}'"):
        rule_of("r", given)


def test_a_rule_is_encoded_as_described_lists() -> None:
    rule = Rule("r", SqlFilter("a = 1"), SqlAction("SET b = 2"), created_at=5_000)
    assert on_the_wire(describe_rule(rule)) == Described(
        ULong(0x13700000004),
        [
            Described(ULong(0x1370000006), ["a = 1", 20]),
            Described(ULong(0x13700000006), ["SET b = 2", 20]),
            "r",
            Timestamp(5),
        ],
    )


def fields(rule: Rule) -> list[Any]:
    value = on_the_wire(describe_rule(rule)).value
    assert isinstance(value, list)
    return value


def test_filters_without_a_text_are_empty_lists() -> None:
    true, action, name, _ = fields(Rule("r", TrueFilter()))
    assert true == Described(ULong(0x1370000007), [])
    assert (action, name) == (Described(ULong(0x13700000005), []), "r")
    assert fields(Rule("r", FalseFilter()))[0] == Described(ULong(0x1370000008), [])


def test_a_correlation_filter_has_nine_fields_and_its_properties_come_back() -> None:
    chosen = CorrelationFilter(
        message_id="m",
        content_type="t",
        properties=(("when", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), ("span", timedelta(seconds=2)), ("n", 5)),
    )
    wire = fields(Rule("r", chosen))[0]
    assert wire.descriptor == 0x1370000009
    assert wire.value[:8] == [None, "m", None, None, None, None, None, "t"]
    given = {"correlation-filter": {"message-id": "m", "content-type": "t", "properties": wire.value[8]}}
    assert rule_of("r", given).filter == chosen


TIME_SPAN, DATE = Symbol("com.microsoft:timespan"), Symbol("com.microsoft:datetime-offset")
EXTREMES = [
    *(kind(2**bits - 1) for kind, bits in ((UByte, 8), (UShort, 16), (UInt, 32), (ULong, 64))),
    *(
        kind(sign * 2**bits - (sign > 0))
        for kind, bits in ((Byte, 7), (Short, 15), (Int, 31), (Long, 63))
        for sign in (1, -1)
    ),
    *(Described(TIME_SPAN, ticks) for ticks in (-(2**63), -15, -1, 0, 1, 15, 2**63 - 1)),
    *(Described(DATE, ticks) for ticks in (0, 1, 3_155_378_975_999_999_999)),
    *(Timestamp(milliseconds) for milliseconds in (-62_135_596_800_000, 253_402_300_799_999)),
    *(Float(value) for value in (3.4e38, float("inf"), float("nan"), 1e-45)),
    *(1.7e308, float("-inf"), b"", b"\xff" * 300, "", "\0", "\ud7ff", True, UUID(int=2**128 - 1)),
]


@pytest.mark.parametrize("value", EXTREMES, ids=repr)
def test_a_rule_that_a_client_can_add_can_be_stored_and_listed(value: Any) -> None:
    rule = rule_of("r", on_the_wire({"correlation-filter": {"properties": {"p": value}}}))
    catalogue = Catalogue().create(Topic(name="t"), 1).create(Subscription(topic="t", name="s"), 1, [rule])
    read = catalogue_from_json(catalogue_to_json(catalogue)).rule("t", "s", "r")
    assert repr(on_the_wire(describe_rule(read))) == repr(on_the_wire(describe_rule(rule)))
