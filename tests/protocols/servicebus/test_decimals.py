from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import _decode_decimal128
from azure.servicebus._pyamqp._encode import encode_decimal128

from oncebus import amqp
from oncebus.amqp.types import Decimal128
from oncebus.protocols.servicebus.decimals import translate_decimal
from oncebus.protocols.servicebus.messages import incoming_message

from .bus import encoded


def standard(number: str) -> Decimal128:
    """Return the client's own encoding, which is that of the standard."""
    output = bytearray()
    encode_decimal128(output, Decimal(number))
    return Decimal128(output[1:])


def read(value: Decimal128) -> Any:
    """Return a number as the client decodes it."""
    return _decode_decimal128(memoryview(bytes(value)))[1]


@pytest.mark.parametrize("number", ["0", "1.5", "-7", "12345678", "0.0000000001", "99999999", "-0.5"])
def test_a_number_comes_back_as_the_client_reads_it(number: str) -> None:
    given = standard(number)
    # Without the translation, the client cannot decode its own encoding.
    if number != "0":
        with pytest.raises(ValueError, match="Invalid AMQP decimal128"):
            read(given)
    found = translate_decimal(given)
    assert isinstance(found, Decimal128)
    assert read(found) == Decimal(number)


@pytest.mark.parametrize(
    ("number", "encoding"),
    [
        # As Microsoft's .NET client writes them.
        ("0", "0c400000000000000000000000000000"),
        ("1.5", "0c3e000000000000000000000000000f"),
        ("-7", "8c400000000000000000000000000007"),
        ("1E+5", "0c4000000000000000000000000186a0"),
        ("79228162514264337593543950335", "0c400000ffffffffffffffffffffffff"),
    ],
)
def test_the_form_is_that_of_dotnet_and_stays(number: str, encoding: str) -> None:
    found = translate_decimal(standard(number))
    assert found == bytes.fromhex(encoding)
    assert translate_decimal(found) is found


@pytest.mark.parametrize("number", ["79228162514264337593543950336", "1E-29", "1E+29", "1E-6176"])
def test_numbers_that_dotnet_cannot_hold_stay_as_they_came(number: str) -> None:
    given = standard(number)
    assert translate_decimal(given) is given
    assert translate_decimal("text") == "text"


def test_decimals_in_application_properties_and_annotations_are_translated() -> None:
    own: dict[str | bytes, Any] = {"text": "\u0094", "price": Decimal("1.5")}
    message = ServiceBusMessage(b"x", application_properties=own)
    message.raw_amqp_message.annotations = {"price": Decimal("2.5")}
    sent = incoming_message(encoded(message))
    received = ServiceBusReceivedMessage.from_bytes(sent.head + sent.body)
    assert received.application_properties == {b"text": "\u0094".encode(), b"price": Decimal("1.5")}
    assert (received.raw_amqp_message.annotations or {})[b"price"] == Decimal("2.5")


def test_a_head_that_cannot_be_decoded_is_delivered_as_it_came() -> None:
    head = b"\x00\x53\x74\xc1\x04\x02\xa1\x01\x94"
    assert incoming_message(head + amqp.encode_body(b"x")).head == head
