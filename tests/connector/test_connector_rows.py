"""Columns and rows that are written, and how messages are packed."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)
from pyspark.sql import types as T

from atom.admin import description, elements
from oncebus.connector.detecting import Unknown, detection_window
from oncebus.connector.errors import BadColumn, BadRow
from oncebus.connector.failures import may_pass
from oncebus.connector.rows import SINK_COLUMNS, check_columns, message_from
from oncebus.connector.schema import ARROW_SCHEMA, SCHEMA, as_text
from oncebus.connector.sending import Placed, packed, pauses

PLACE = "row 5 of partition 2"


def fields(text: str) -> T.StructType:
    """Return the columns of a text such as 'body binary, to string'; without Spark, so only simple types."""
    kinds = {"binary": T.BinaryType(), "string": T.StringType(), "int": T.IntegerType(), "double": T.DoubleType()}
    pairs = (pair.split() for pair in text.split(", "))
    return T.StructType([T.StructField(name, kinds[kind]) for name, kind in pairs])


def test_all_columns_are_allowed() -> None:
    given = {
        "application_properties": T.MapType(T.StringType(), T.LongType()),
        "scheduled_enqueue_time": T.TimestampType(),
        "time_to_live": T.DayTimeIntervalType(),
    }
    check_columns(
        T.StructType([T.StructField(each.name, given.get(each.name, T.StringType())) for each in SINK_COLUMNS])
    )


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (fields("to string"), "Column 'body' is missing."),
        (fields("body int"), "Column 'body' has the type int, not binary or string."),
        (fields("body string, message_id double"), "Column 'message_id' has the type double, not string."),
        (fields("body string, id string"), "Column 'id' is not part of a message. There are: body, message_id, "),
        (fields("body string, scheduled_enqueue_time string"), "has the type string, not timestamp."),
    ],
)
def test_wrong_columns(columns: T.StructType, error: str) -> None:
    with pytest.raises(BadColumn) as raised:
        check_columns(columns)
    assert error in str(raised.value)


def test_wrong_properties() -> None:
    for kind in (T.MapType(T.IntegerType(), T.StringType()), T.MapType(T.StringType(), T.DateType()), T.StringType()):
        columns = T.StructType([T.StructField("body", T.StringType()), T.StructField("application_properties", kind)])
        with pytest.raises(BadColumn, match="Column 'application_properties' has the type"):
            check_columns(columns)


def test_a_row_becomes_a_message() -> None:
    row: dict[str, Any] = {
        "body": "text",
        "session_id": "s",
        "partition_key": "s",
        "subject": "sub",
        "correlation_id": "c",
        "reply_to": "r",
        "reply_to_session_id": "rs",
        "content_type": "text/plain",
        "to": "t",
        "application_properties": {"a": 1, "b": True},
        "scheduled_enqueue_time": datetime(2030, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        "time_to_live": "10 minutes",
    }
    message = message_from(row, "id", PLACE)
    assert b"".join(message.body) == b"text"
    for name in ("session_id", "partition_key", "subject", "correlation_id", "reply_to", "content_type", "to"):
        assert getattr(message, name) == row[name]
    assert message.message_id == "id"
    assert message.reply_to_session_id == "rs"
    assert message.application_properties == {"a": 1, "b": True}
    assert message.scheduled_enqueue_time_utc == datetime(2030, 1, 1)
    assert message.time_to_live == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"body": None}, f"Column 'body' is null in {PLACE}."),
        ({"body": b"", "session_id": "x" * 129}, f"in {PLACE} is longer than 128 characters."),
        ({"body": b"", "session_id": "a", "partition_key": "b"}, f"Column 'partition_key' 'b' in {PLACE} differs"),
        ({"body": b"", "time_to_live": "soon"}, f"Column 'time_to_live' in {PLACE}: Time_to_live 'soon' is not a"),
    ],
)
def test_wrong_rows(row: dict[str, Any], error: str) -> None:
    with pytest.raises(BadRow) as raised:
        message_from(row, "id", PLACE)
    assert error in str(raised.value)


class Box:
    """A batch with room for ten bytes of bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def add_message(self, message: ServiceBusMessage) -> None:
        body = b"".join(message.body)
        if sum(map(len, self.bodies)) + len(body) > 10:
            raise MessageSizeExceededError(message="full")
        self.bodies.append(body)

    def __len__(self) -> int:
        return len(self.bodies)


def test_messages_are_packed_by_size_in_order() -> None:
    sizes = [4, 4, 4, 11, 10, 1, 1]
    given = [Placed(ServiceBusMessage(b"x" * size), str(size)) for size in sizes]
    found = [each.place if isinstance(each, Placed) else list(map(len, each.bodies)) for each in packed_in_boxes(given)]
    assert found == [[4, 4], [4], "11", [10], [1, 1]]


def packed_in_boxes(given: list[Placed]) -> list[Box | Placed]:
    found: list[Box | Placed] = []
    for each in packed(iter(given), Box):
        assert isinstance(each, Box | Placed)
        found.append(each)
    return found


def test_pauses_grow_and_end() -> None:
    found = list(pauses(60, random.Random(1)))
    assert sum(found) == pytest.approx(60)
    assert found[0] <= 0.5
    assert max(found) <= 15
    assert found[3] > found[0]


def test_errors_that_may_pass() -> None:
    assert may_pass(ServiceBusServerBusyError(message="busy"))
    assert may_pass(ServiceBusConnectionError(message="away"))
    assert may_pass(ConnectionResetError())
    assert may_pass(AttributeError("'NoneType' object has no attribute 'state'"))
    assert not may_pass(BadRow("no"))
    assert not may_pass(ClientAuthenticationError("no"))
    assert not may_pass(MessagingEntityNotFoundError(message="gone"))
    assert not may_pass(MessageSizeExceededError(message="large"))


def test_the_schema_of_arrow_and_spark_agree() -> None:
    assert ARROW_SCHEMA.names == SCHEMA.names
    assert len(SCHEMA) == 22


def test_values_as_text() -> None:
    values = ["a", b"\xc3\xb6", True, 7, 1.5, None, datetime(2030, 1, 1, tzinfo=UTC)]
    assert [as_text(value) for value in values] == ["a", "ö", "true", "7", "1.5", None, "2030-01-01T00:00:00+00:00"]


def test_the_window_of_a_description() -> None:
    def described(**values: object) -> bytes:
        return description("QueueDescription", elements(**values))

    given = described(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT20S")
    assert detection_window(given) == 20
    assert detection_window(described(RequiresDuplicateDetection=False)) is None
    for wrong in (b"<feed/>", b"no xml", described(LockDuration="PT1M")):
        with pytest.raises(Unknown):
            detection_window(wrong)
