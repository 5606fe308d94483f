"""The trace context of messages."""

from __future__ import annotations

import pytest

from oncebus import amqp
from oncebus.amqp.head import encode_head
from oncebus.protocols.monitoring.trace_context import LONGEST_STATE, context_of, is_sampled

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"


def of(**properties: object) -> dict[str, str] | None:
    return context_of(encode_head(amqp.Properties(message_id="a"), properties))


def test_the_properties_of_w3c_are_read() -> None:
    assert of(traceparent=PARENT) == {"traceparent": PARENT}
    assert of(traceparent=PARENT, tracestate="a=1,b=2") == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert of(traceparent=PARENT.encode()) == {"traceparent": PARENT}


def test_diagnostic_id_counts_if_there_is_no_traceparent() -> None:
    assert of(**{"Diagnostic-Id": PARENT}) == {"traceparent": PARENT}
    assert of(**{"Diagnostic-Id": OTHER, "traceparent": PARENT}) == {"traceparent": PARENT}


@pytest.mark.parametrize("parent", ["", "|7e1c.", 7, None, True, "x" * 56 * 2, b"\xff"])
def test_other_values_are_no_context(parent: object) -> None:
    assert of(traceparent=parent) is None
    assert of(**{"Diagnostic-Id": parent}) is None


def test_a_long_state_is_left_out() -> None:
    assert of(traceparent=PARENT, tracestate="a=" + "x" * LONGEST_STATE) == {"traceparent": PARENT}


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True), ("ff", True), ("0x", False)])
def test_the_sender_says_whether_it_samples(flags: str, sampled: bool) -> None:
    assert is_sampled({"traceparent": PARENT[:-2] + flags}) is sampled


def test_heads_without_a_context_have_none() -> None:
    assert context_of(b"") is None
    assert of() is None
    assert of(text="traceparent") is None
    # A head that cannot be decoded.
    assert context_of(b"\x00\x53\x74\xc1\x20\x02traceparent") is None
