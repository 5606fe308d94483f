"""Decimals as Microsoft's clients write and read them.

A decimal128 of the standard (IEEE 754, binary integer significand) is a sign bit, 14 bits of exponent and 113 bits of
significand. Microsoft's clients read the exponent from other bits: seven of the first byte times 512, plus seven of the
second. A number in the standard's form is far out of their range, and azure-servicebus then drops the message. Its own
encoder, and those of other vendors, write the standard's form.

So numbers that .NET's decimal can hold are translated: up to 96 bits and 28 digits after the point. Read as the
standard's, Microsoft's form is far from these, so it comes back unchanged.
"""

from __future__ import annotations

from oncebus import amqp
from oncebus.amqp.types import Decimal128, DecodeError

FORMAT_CODE = b"\x94"
_BIAS = 6176
_MOST_DIGITS = 28
_SIGNIFICAND_BITS = 113
_LARGEST = (1 << 96) - 1


def translate_decimal(value: object) -> object:
    """Return a decimal128 in the form that Microsoft's clients read. Any other value is returned unchanged."""
    if not isinstance(value, Decimal128):
        return value
    bits = int.from_bytes(value)
    exponent = (bits >> _SIGNIFICAND_BITS & 0x3FFF) - _BIAS
    significand = bits & (1 << _SIGNIFICAND_BITS) - 1
    if 0 < exponent <= _MOST_DIGITS:
        # .NET's decimal has no positive exponent.
        significand, exponent = significand * 10**exponent, 0
    if not -_MOST_DIGITS <= exponent <= 0 or significand > _LARGEST:
        return value
    biased = exponent + _BIAS
    first = (bits >> 120 & 0x80) | biased >> 9
    return Decimal128(bytes((first, (biased & 0x7F) << 1)) + significand.to_bytes(14))


def translate_decimals(head: bytes) -> bytes:
    """Return the head with the decimals of its application properties translated.

    A head that cannot be decoded is returned unchanged: it is delivered as it came.
    """
    try:
        own = amqp.application_properties(head)
        changed = {name: new for name, old in own.items() if (new := translate_decimal(old)) is not old}
        return amqp.with_application_properties(head, changed)
    except DecodeError:
        return head
