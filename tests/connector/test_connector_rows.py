"""Columns and rows that are written, and how messages are packed."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp.error import AMQPException, ErrorCondition, TokenAuthFailure
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from pyspark.sql import types as T

from oncebus.connector.attempts import pauses
from oncebus.connector.detecting import Unknown, detection_window
from oncebus.connector.errors import BadColumn, BadOption, BadRow
from oncebus.connector.failures import may_pass
from oncebus.connector.ids import Ids
from oncebus.connector.rows import SINK_COLUMNS, check_columns, message_from
from oncebus.connector.sending import MOST_MESSAGES, Placed, pack, runs
from oncebus.connector.sink import _messages
from tests.protocols.atom.admin import description, elements
from tests.protocols.servicebus.bus import encoded

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
        "application_properties": {"a": 1, "b": True, "c": 1 << 40, "d": b"\xff"},
        "scheduled_enqueue_time": datetime(2030, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        "time_to_live": "10 minutes",
    }
    message = message_from(row, "id", PLACE)
    assert b"".join(message.body) == b"text"
    for name in ("session_id", "partition_key", "subject", "correlation_id", "reply_to", "content_type", "to"):
        assert getattr(message, name) == row[name]
    assert message.message_id == "id"
    assert message.reply_to_session_id == "rs"
    decoded = ServiceBusReceivedMessage.from_bytes(encoded(message)).application_properties
    assert decoded == {b"a": 1, b"b": True, b"c": 1 << 40, b"d": b"\xff"}
    assert message.scheduled_enqueue_time_utc == datetime(2030, 1, 1)
    assert message.time_to_live == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"body": None}, f"Column 'body' is null in {PLACE}."),
        ({"body": b"", "session_id": "x" * 129}, f"in {PLACE} is longer than 128 characters."),
        ({"body": b"", "session_id": "a", "partition_key": "b"}, f"Column 'partition_key' 'b' in {PLACE} differs"),
        ({"body": b"", "time_to_live": "soon"}, f"Column 'time_to_live' in {PLACE}: Time_to_live 'soon' is not a"),
        (
            {"body": b"", "time_to_live": timedelta(milliseconds=999)},
            f"Column 'time_to_live' datetime.timedelta(microseconds=999000) in {PLACE} is shorter than a second.",
        ),
    ],
)
def test_wrong_rows(row: dict[str, Any], error: str) -> None:
    with pytest.raises(BadRow) as raised:
        message_from(row, "id", PLACE)
    assert error in str(raised.value)


def test_an_empty_id() -> None:
    """A broker would take all such rows for duplicates of each other, or for messages without an id."""
    with pytest.raises(BadRow, match=f"^Column 'message_id' is empty in {PLACE}. Give null for an id that is derived"):
        message_from({"body": b""}, "", PLACE)


def test_a_time_that_python_does_not_have() -> None:
    late = pa.array([10**18], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch([pa.array(["a"]), late], ["body", "scheduled_enqueue_time"])
    error = (
        "^Column 'scheduled_enqueue_time' in partition 2 has a value that is out of range: date value out of range.$"
    )
    with pytest.raises(BadRow, match=error):
        list(_messages(iter([batch]), Ids(["write"], "a"), 2))


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
    found = [([int(each.place) for each in pack.messages], pack.batch) for pack in pack(given, Box)]
    assert [messages for messages, _ in found] == [[4, 4], [4], [11], [10], [1, 1]]
    for messages, batch in found:
        if messages == [11]:
            assert batch is None
        else:
            assert isinstance(batch, Box)
            assert list(map(len, batch.bodies)) == messages


def test_messages_are_packed_by_number() -> None:
    given = [Placed(ServiceBusMessage(b""), str(number)) for number in range(2 * MOST_MESSAGES + 1)]
    assert [len(pack.messages) for pack in pack(given, Box)] == [MOST_MESSAGES, MOST_MESSAGES, 1]


def test_no_rows_need_no_batch() -> None:
    """A batch needs a connection. Most partitions of a small batch after a shuffle have no rows."""

    def refuse() -> Box:
        raise AssertionError

    assert list(pack([], refuse)) == []


def test_messages_of_a_partition() -> None:
    given = [
        ServiceBusMessage(b"", message_id="1", partition_key="a"),
        ServiceBusMessage(b"", message_id="2", partition_key="a"),
        ServiceBusMessage(b"", message_id="3", session_id="a"),
        ServiceBusMessage(b"", message_id="4"),
        ServiceBusMessage(b"", message_id="5"),
        # A key that looks like an id is another partition.
        ServiceBusMessage(b"", message_id="6", partition_key="5"),
    ]
    found = [[each.place for each in run] for run in runs(Placed(each, str(each.message_id)) for each in given)]
    assert found == [["1", "2", "3"], ["4"], ["5"], ["6"]]


def test_pauses_grow_and_end() -> None:
    passed: list[float] = []
    found: list[float] = []
    for pause in pauses(60, random.Random(1), lambda: sum(passed)):
        found.append(pause)
        # An attempt takes a second.
        passed.append(pause + 1)
    assert 60 <= sum(passed) <= 61
    assert found[0] <= 0.5
    assert max(found) <= 15
    assert found[3] > found[0]


def test_errors_that_may_pass() -> None:
    assert may_pass(ServiceBusServerBusyError(message="busy"))
    assert may_pass(ServiceBusConnectionError(message="away"))
    assert may_pass(ConnectionResetError())
    assert may_pass(AttributeError("'NoneType' object has no attribute 'state'"))
    assert may_pass(ServiceBusError("Handler failed: reset.", error=ConnectionResetError()))
    assert may_pass(ServiceBusQuotaExceededError(message="full"))
    assert may_pass(ServiceRequestError("the service of tokens is away"))
    assert not may_pass(BadRow("no"))
    assert not may_pass(ClientAuthenticationError("no"))
    assert not may_pass(MessagingEntityNotFoundError(message="gone"))
    assert not may_pass(MessageSizeExceededError(message="large"))
    assert not may_pass(ServiceBusError("Handler failed: no.", error=ClientAuthenticationError("no")))
    assert not may_pass(BadOption("no file"))
    refused = AMQPException(ErrorCondition.NotAllowed, description="no")
    assert not may_pass(ServiceBusError("no", error=refused, condition=b"amqp:not-allowed"))


def test_errors_that_may_pass_while_somebody_replaces_the_key() -> None:
    key = TokenAuthFailure(401, b"InvalidSignature")  # type: ignore[no-untyped-call]
    for error in (ServiceBusAuthenticationError(message="no", error=key), BadOption("the file is empty")):
        assert not may_pass(error)
        assert may_pass(error, is_renewable=True)
    assert not may_pass(MessagingEntityNotFoundError(message="gone"), is_renewable=True)
    assert not may_pass(BadRow("no"), is_renewable=True)


def test_the_window_of_a_description() -> None:
    def described(**values: object) -> bytes:
        return description("QueueDescription", elements(**values))

    given = described(RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT20S")
    assert detection_window(given) == 20
    assert detection_window(described(RequiresDuplicateDetection=False)) is None
    for wrong in (b"<feed/>", b"no xml", described(LockDuration="PT1M")):
        with pytest.raises(Unknown):
            detection_window(wrong)
