"""Received messages become rows, whatever their senders have put into them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from oncebus.connector.schema import ARROW_SCHEMA, SCHEMA, as_text, body_of, rows_from
from tests.protocols.servicebus.bus import encoded

SOME_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
BINARY = {"TYPE": "BINARY", "VALUE": b"\xff"}
ENQUEUED = 1_893_456_000_000
"""The beginning of 2030, in milliseconds."""


def received(message: ServiceBusMessage | AmqpAnnotatedMessage, number: int = 7) -> ServiceBusReceivedMessage:
    """Return a message as the client decodes it, with the annotations of a broker."""
    given = message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message
    enqueued = {"TYPE": "TIMESTAMP", "VALUE": ENQUEUED}
    given.annotations = {
        **(given.annotations or {}),
        "x-opt-sequence-number": number,
        "x-opt-enqueued-time": enqueued,
    }
    return ServiceBusReceivedMessage.from_bytes(encoded(given))


def row_of(message: ServiceBusMessage | AmqpAnnotatedMessage) -> dict[str, Any]:
    (row,) = rows_from([received(message)]).to_pylist()
    found: dict[str, Any] = row
    return found


def test_the_schema_of_arrow_and_spark_agree() -> None:
    assert ARROW_SCHEMA.names == SCHEMA.names
    assert len(SCHEMA) == 22


def test_values_as_text() -> None:
    values = ["a", b"\xc3\xb6", True, 7, 1.5, None, datetime(2030, 1, 1, tzinfo=UTC), SOME_UUID, Decimal("1.50")]
    texts = ["a", "ö", "true", "7", "1.5", None, "2030-01-01T00:00:00+00:00", str(SOME_UUID), "1.50"]
    assert [as_text(value) for value in values] == texts
    # Different bytes stay different, so that different ids do.
    assert [as_text(value) for value in (b"\xff", b"\xfe")] == ["ff", "fe"]
    assert as_text({b"a": [b"b", 1, None, SOME_UUID]}) == json.dumps({"a": ["b", 1, None, str(SOME_UUID)]})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"data_body": b""}, b""),
        ({"data_body": [b"a", b"\x00\xff"]}, b"a\x00\xff"),
        ({"value_body": "ö"}, "ö".encode()),
        ({"value_body": b"\xff"}, b"\xff"),
        ({"value_body": None}, b""),
        ({"value_body": 7}, b"7"),
        ({"value_body": True}, b"true"),
        ({"value_body": float("inf")}, b'"inf"'),
        ({"value_body": SOME_UUID}, b'"%s"' % str(SOME_UUID).encode()),
        ({"value_body": {"a": {"b": [1, "c", None]}, 5: SOME_UUID}}, None),
        ({"value_body": [b"a", [True]]}, b'["a", [true]]'),
        ({"sequence_body": [1, "a", {"b": None}]}, b'[[1, "a", {"b": null}]]'),
        ({"sequence_body": [[1], ["a"]]}, b'[[1], ["a"]]'),
    ],
)
def test_every_kind_of_body(body: dict[str, Any], expected: bytes | None) -> None:
    found = body_of(received(AmqpAnnotatedMessage(**body)))
    if expected is None:
        assert json.loads(found) == {"a": {"b": [1, "c", None]}, "5": str(SOME_UUID)}
    else:
        assert found == expected


def test_every_kind_of_property() -> None:
    given: dict[str | bytes, Any] = {
        "text": "ö",
        "bytes": BINARY,
        "whole": -5,
        "large": {"TYPE": "LONG", "VALUE": 2**62},
        "float": 1.5,
        "true": True,
        "null": None,
        "uuid": SOME_UUID,
        "time": datetime(2030, 1, 1, tzinfo=UTC),
        "map": {"a": [1, {"b": "c"}]},
        "list": ["a", None],
        "": "no name",
    }
    found = dict(row_of(ServiceBusMessage("a", application_properties=given))["application_properties"])
    assert found.pop("time").startswith("18934")
    assert found == {
        "text": "ö",
        "bytes": "ff",
        "whole": "-5",
        "large": str(2**62),
        "float": "1.5",
        "true": "true",
        "null": None,
        "uuid": str(SOME_UUID),
        "map": '{"a": [1, {"b": "c"}]}',
        "list": '["a", null]',
        "": "no name",
    }


@pytest.mark.parametrize("message_id", [7, SOME_UUID, b"\xff\xfe", "text"])
def test_ids_that_are_no_text(message_id: Any) -> None:
    message = AmqpAnnotatedMessage(data_body=b"a", properties=AmqpMessageProperties(message_id=message_id))
    assert row_of(message)["message_id"] == as_text(message_id)


def test_a_message_that_the_client_cannot_read_becomes_a_row(caplog: pytest.LogCaptureFixture) -> None:
    """Everybody who may send could otherwise stop the stream."""
    properties: dict[str | bytes, Any] = {"DeadLetterReason": BINARY, "DeadLetterErrorDescription": "fine"}
    poison = ServiceBusMessage("poison", application_properties=properties)
    poison.raw_amqp_message.annotations = {
        "x-opt-message-state": 99,
        "x-opt-enqueue-sequence-number": "many",
        "x-opt-scheduled-enqueue-time": {"TYPE": "LONG", "VALUE": 2**62},
    }
    messages = [received(ServiceBusMessage("good", message_id="1"), 1), received(poison, 2)]
    good, row = rows_from(messages).to_pylist()
    assert (good["body"], good["message_id"], good["sequence_number"], good["state"]) == (b"good", "1", 1, "active")
    assert (row["body"], row["sequence_number"], row["dead_letter_description"]) == (b"poison", 2, "fine")
    columns = ["enqueued_sequence_number", "scheduled_enqueue_time", "state", "dead_letter_reason"]
    assert [row[name] for name in columns] == [None] * 4
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(columns)
    for name, warning in zip(columns, warnings, strict=True):
        start = (
            f"Column '{name}' is null in 1 messages of a batch, because the value cannot be read. The first has the "
        )
        assert warning.startswith(f"{start}sequence number 2: ")
