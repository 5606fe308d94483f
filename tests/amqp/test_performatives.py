from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.amqp.decoding import decode_all
from oncebus.amqp.encoding import encode
from oncebus.amqp.outcomes import (
    Accepted,
    AmqpError,
    Declared,
    DeliveryState,
    Modified,
    ReceivedState,
    Rejected,
    Released,
    TransactionalState,
)
from oncebus.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from oncebus.amqp.types import Array, DecodeError, Described, EncodeError, Symbol, UByte, UInt, ULong
from tests.amqp.client import receiver, sender
from tests.amqp.values import maps, simple, symbols, texts
from tests.properties import examples

FIELDS: dict[Symbol, object] = {Symbol("a"): 1, Symbol("b"): [None, "c"]}
ERROR = AmqpError("amqp:not-found", "Words", FIELDS)

WHOLE: list[tuple[Performative, int, int]] = [
    (
        Open(
            container_id="c",
            hostname="h",
            max_frame_size=512,
            channel_max=3,
            idle_time_out=5,
            outgoing_locales=[Symbol("en")],
            incoming_locales=[Symbol("de"), Symbol("tr")],
            offered_capabilities=[Symbol("x")],
            desired_capabilities=[],
            properties=FIELDS,
        ),
        0x10,
        10,
    ),
    (Begin(remote_channel=1, next_outgoing_id=2, incoming_window=3, outgoing_window=4, handle_max=5), 0x11, 8),
    (
        receiver(
            "r",
            7,
            source=Source(
                "queue",
                1,
                "never",
                5,
                True,
                FIELDS,
                "move",
                {Symbol("f"): Described(Symbol("f"), "g")},
                Modified(True, False, FIELDS),
                [Symbol("amqp:accepted:list")],
                [Symbol("queue")],
            ),
            target=Target("here", 2, "link-detach", 1, True, FIELDS, [Symbol("topic")]),
            unsettled={b"tag": Described(ULong(0x24), [])},
            incomplete_unsettled=True,
            max_message_size=2**63,
        ),
        0x12,
        14,
    ),
    (sender("s", 8, target=Coordinator([Symbol("amqp:local-transactions")])), 0x12, 14),
    (Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, drain=True, properties=FIELDS), 0x13, 11),
    (Transfer(handle=1, delivery_id=2, delivery_tag=b"t", state=ReceivedState(1, 2), rcv_settle_mode=1), 0x14, 11),
    (Disposition(role=True, first=1, state=Rejected(ERROR), batchable=True), 0x15, 6),
    (Disposition(role=False, first=1, last=2, settled=True, state=TransactionalState(b"x", Released())), 0x15, 6),
    (Detach(handle=1, closed=True, error=ERROR), 0x16, 3),
    (End(error=ERROR), 0x17, 1),
    (Close(), 0x18, 1),
]


UNREAD = (
    "outgoing_locales",
    "incoming_locales",
    "offered_capabilities",
    "desired_capabilities",
    "unsettled",
)


@pytest.mark.parametrize(("performative", "code", "count"), WHOLE, ids=lambda it: type(it).__name__)
def test_a_performative_is_written_with_all_its_fields_and_read_without_the_unused_ones(
    performative: Performative, code: int, count: int
) -> None:
    unread = UNREAD if isinstance(performative, Attach) else (*UNREAD, "properties")
    data = encode_performative(performative)
    assert data[:3] == bytes((0, 0x53, code))
    assert len(decode_all(data).value) == count
    read, at = decode_performative(b"x" + data + b"payload", 1, len(data) + 8)
    assert at == len(data) + 1
    unused: dict[str, Any] = {name: None for name in unread if hasattr(performative, name)}
    whole: Any = performative
    assert read == replace(whole, **unused)


def read(code: int | str, fields: list[object]) -> Any:
    data = encode(Described(Symbol(code) if isinstance(code, str) else ULong(code), fields))
    return decode_performative(data, 0, len(data))[0]


def test_a_missing_or_null_field_has_its_default() -> None:
    expected = Attach(name="n", handle=1, role=True)
    assert read(0x12, ["n", UInt(1), True]) == expected
    assert read("amqp:attach:list", ["n", UInt(1), True, *[None] * 11]) == expected
    assert (expected.snd_settle_mode, expected.rcv_settle_mode, expected.incomplete_unsettled) == (2, 0, False)
    assert read(0x10, ["c"]) == Open(container_id="c", max_frame_size=2**32 - 1, channel_max=65535)


def test_lenient_forms_with_a_clear_meaning_are_read() -> None:
    opened = read(
        0x10, [Symbol("c"), None, 1024, UByte(5), ULong(7), Symbol("en"), Array(str, ["a"]), None, None, {"p": 1}]
    )
    assert opened == Open(
        container_id="c",
        max_frame_size=1024,
        channel_max=5,
        idle_time_out=7,
    )
    assert type(opened.container_id) is str
    assert type(opened.max_frame_size) is int
    attach = read(0x12, ["n", 1, True, *[None] * 10, {"p": 1}])
    assert {type(name) for name in attach.properties} == {Symbol}
    terminus = Described(ULong(0x29), ["a", *[None] * 5, Symbol("one")])
    assert read(0x12, ["n", 1, False, None, None, None, terminus]).target == Target("a", capabilities=[Symbol("one")])


@pytest.mark.parametrize(
    ("code", "fields", "reason"),
    [
        (0x10, [], "open at byte 0: container-id is missing"),
        (0x10, [None], "open at byte 0: container-id is missing"),
        (0x10, [5], "open at byte 0: container-id cannot be 5: expected string"),
        (0x10, ["c", None, True], "open at byte 0: max-frame-size cannot be True: expected uint"),
        (0x10, ["c", None, -1], "open at byte 0: max-frame-size cannot be -1: expected uint"),
        (
            0x10,
            ["c", None, None, UInt(65536)],
            r"channel-max cannot be UInt\(65536\): expected ushort",
        ),
        (0x12, ["n", 1, True, *[None] * 10, {5: 6}], "properties cannot be {5: 6}: expected fields"),
        (0x12, ["n", 1, True, *[None] * 10, [1]], r"properties cannot be \[1\]: expected fields"),
        (
            0x12,
            ["n", 1, False, *[None] * 3, Described(ULong(0x30), [5])],
            "capabilities cannot be 5: expected symbols",
        ),
        (
            0x12,
            ["n", 1, False, *[None] * 3, Described(ULong(0x30), ["ö"])],
            "capabilities cannot be 'ö': expected symbols",
        ),
        (0x10, ["c"] + [None] * 10, "open at byte 0: 11 fields are more than 10"),
        (0x12, ["n", UInt(1), UInt(0)], "role cannot be UInt.0.: expected boolean"),
        (0x12, ["n", UInt(1), True, None, None, "queue"], "'queue' has no descriptor"),
        (0x12, ["n", UInt(1), True, None, None, Described(ULong(0x29), [])], "source cannot be .*: expected source"),
        (0x12, ["n", UInt(1), True, None, None, None, Described(ULong(0x28), [])], "expected target or coordinator"),
        (0x12, ["n", UInt(1), True, None, None, Described(ULong(0x28), [5])], "source at byte 0: address cannot be 5"),
        (
            0x12,
            ["n", UInt(1), True, None, None, Described(ULong(0x28), 5)],
            "source at byte 0: its fields are no",
        ),
        (0x14, [UInt(1), None, "tag"], "delivery-tag cannot be 'tag': expected binary"),
        (0x15, [True, UInt(1), None, None, "accepted"], "'accepted' has no descriptor"),
        (0x16, [UInt(1), True, Described(ULong(0x1D), [])], "error at byte 0: condition is missing"),
        (0x24, [], "performative at byte 0: .* is not a performative"),
        (0x99, [], "performative at byte 0: .* is not a performative"),
    ],
)
def test_ambiguous_or_invalid_fields_are_refused(code: int, fields: list[object], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(code, fields)


def test_a_performative_without_a_mandatory_field_is_not_written() -> None:
    with pytest.raises(EncodeError, match="AMQP error needs condition"):
        encode_performative(End(error=AmqpError(None)))  # type: ignore[arg-type]


def test_plain_names_are_written_as_symbols() -> None:
    asked = receiver(source=Source("q", filter={"f": 1}), properties={"p": 1})  # type: ignore[dict-item]
    (_, _, _, _, _, source, *_, properties) = decode_all(encode_performative(asked)).value
    assert {type(name) for name in [*source.value[7], *properties]} == {Symbol}
    with pytest.raises(EncodeError, match=r"AMQP symbol cannot hold Symbol\('ö'\)"):
        encode_performative(End(error=AmqpError("ö")))


def test_outcomes_know_their_names() -> None:
    outcomes: list[tuple[int, str, DeliveryState]] = [
        (0x23, "received", ReceivedState(1, 2)),
        (0x24, "accepted", Accepted()),
        (0x25, "rejected", Rejected(AmqpError("a:b"))),
        (0x26, "released", Released()),
        (0x27, "modified", Modified(True)),
        (0x33, "declared", Declared(b"tx")),
        (0x34, "transactional-state", TransactionalState(b"tx", Modified(None, True))),
    ]
    for code, name, outcome in outcomes:
        fields = decode_all(encode_performative(Disposition(role=True, first=0, state=outcome))).value[4]
        assert fields.descriptor == code
        again = read(0x15, [True, UInt(0), None, None, Described(Symbol(f"amqp:{name}:list"), fields.value)])
        assert again.state == outcome


own_fields = st.none() | st.dictionaries(symbols, simple, max_size=3)


@given(texts, st.none() | texts, own_fields, st.none() | maps(simple), st.none() | st.lists(symbols, max_size=3))
@examples(60)
def test_any_fields_are_read_as_they_were_written(
    name: str, address: str | None, fields: Any, unsettled: Any, capabilities: Any
) -> None:
    attach = sender(name, 1, source=Source(address, filter=fields, capabilities=capabilities), properties=fields)
    data = encode_performative(replace(attach, unsettled=unsettled))
    assert repr(decode_performative(data, 0, len(data))[0]) == repr(attach)
