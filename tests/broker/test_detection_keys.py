"""Detection keys, an extension beyond Azure: the id from a property or from the body."""

from __future__ import annotations

import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus import amqp
from oncebus.amqp.encoding import encode
from oncebus.amqp.message import AmqpSequence, AmqpValue
from oncebus.amqp.types import Float, Int, Symbol, Timestamp, UByte, ULong
from oncebus.broker.sending import Incoming, SequenceNumbers, admit_all, row_of
from oncebus.engine.store import Outcome
from oncebus.model.entities import InvalidOperation, Queue
from tests.broker.scenes import SECOND, Scene, message, play
from tests.broker.test_transactions import Client
from tests.reference import Message, Reference, counted

KEYS = st.sampled_from(["messageId", "body", "property:order", "property:other"])
TEXTS = st.sampled_from(["", "1", "2", "true", "ö"])
VALUES = st.one_of(TEXTS, st.sampled_from([1, Int(1), ULong(1), UByte(2), b"", b"1", b"2"]))
SENT = st.tuples(
    st.one_of(st.none(), TEXTS),
    st.dictionaries(st.sampled_from(["order", "other"]), VALUES),
    st.sampled_from([b"", b"1", b"2", b"x" * 300]),
    # Where the body is split into data sections.
    st.integers(0, 3),
)
LARGE = b"x" * 70_000


def in_sections(body: bytes, splits: int) -> bytes:
    bounds = [0, *(len(body) * each // (splits + 1) for each in range(1, splits + 1)), len(body)]
    return b"".join(amqp.encode_body(body[start:end]) for start, end in pairwise(bounds))


def key_of_row(detection_key: str | None, sent: Incoming, **properties: Any) -> bytes | None:
    queue = Queue(name="q", id=7, requires_duplicate_detection=True, detection_key=detection_key, **properties)
    return row_of(admit_all(queue, [sent])[0], SequenceNumbers(), 5, 0).get("key")


def body_of(body: Any) -> Incoming:
    return message("any")._replace(body=amqp.encode_body(body))


def with_property(value: object) -> Incoming:
    return message("any", user={"order": value})


@given(KEYS, st.lists(SENT, max_size=8))
def test_two_messages_have_equal_keys_exactly_if_the_reference_counts_the_same_id(
    detection_key: str, sent: list[tuple[str | None, dict[str, Any], bytes, int]]
) -> None:
    stored = None if detection_key == "messageId" else detection_key
    keys, expected = [], []
    for identity, properties, body, splits in sent:
        made = message(identity, user=properties)._replace(body=in_sections(body, splits))
        keys.append(key_of_row(stored, made))
        expected.append(counted(detection_key, identity, properties, body))
    for at, key in enumerate(keys):
        for other, other_key in enumerate(keys):
            if at != other:
                same = expected[at] is not None and expected[at] == expected[other]
                assert (key is not None and key == other_key) == same


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Int(-5), "-5"),
        (ULong(2**64 - 1), str(2**64 - 1)),
        (True, "true"),
        (1.5, "1.5"),
        (Float(1.5), "1.5"),
        (Symbol("abc"), "abc"),
        (Timestamp(1_700_000_000_000), "1700000000000"),
        (uuid.UUID(int=5), str(uuid.UUID(int=5))),
    ],
)
def test_a_property_counts_by_its_text_whatever_its_type(value: object, text: str) -> None:
    key = key_of_row("property:order", with_property(value))
    assert key is not None
    assert key == key_of_row("property:order", with_property(text))


def test_kinds_of_ids_never_share_a_key() -> None:
    sent = [
        (None, message("1")),
        (None, message(b"1")),
        ("property:order", with_property("1")),
        ("property:order", with_property(b"1")),
        ("property:order", with_property(amqp.types.Decimal32(b"1234"))),
        ("body", body_of(b"1")),
        ("body", body_of(AmqpValue(b"1"))),
        ("body", body_of(AmqpSequence(["1"]))),
    ]
    keys = [key_of_row(detection_key, made) for detection_key, made in sent]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_a_body_counts_by_its_content_alone() -> None:
    plain = key_of_row("body", body_of(b"abc"))
    footer = amqp.encode_body(b"abc") + bytes.fromhex("005378") + encode({Symbol("a"): 1})
    long_form = bytes.fromhex("005375b000000003") + b"abc"
    for body in (footer, long_form, in_sections(b"abc", 2)):
        assert key_of_row("body", message("other", user={"a": 1})._replace(body=body)) == plain
    for empty in (b"", amqp.encode_body(b""), amqp.encode_body(AmqpValue(None)), in_sections(b"", 2)):
        assert key_of_row("body", message("id")._replace(body=empty)) is None


def test_the_effective_partition_key_is_part_of_every_kind_of_key() -> None:
    for detection_key, sent in (("property:order", with_property("1")), ("body", body_of(b"1"))):
        alone = key_of_row(detection_key, sent, enable_partitioning=True)
        one, other = (
            key_of_row(detection_key, sent._replace(partition_key=each), enable_partitioning=True) for each in "ab"
        )
        assert len({alone, one, other}) == 3
        assert key_of_row(detection_key, sent._replace(partition_key="a")) == key_of_row(detection_key, sent)


def test_a_message_that_cannot_be_decoded_has_no_id() -> None:
    plain = message("a", b"x", {"order": "1"})
    # The value of the property is a text that is not UTF-8.
    assert key_of_row("property:order", plain._replace(head=plain.head[:-1] + b"\xff")) is None
    assert key_of_row("body", plain._replace(body=b"\x00\x53\x75\xa0\x09x")) is None


@pytest.mark.parametrize("detection_key", ["property:order", "body"])
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_the_broker_drops_what_the_reference_drops(tmp_path: Path, detection_key: str, is_partitioned: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(
            detects=True,
            detection_key=detection_key,
            enable_partitioning=is_partitioned,
            duplicate_detection_history_time_window=60 * SECOND,
        )
        reference, expected = Reference(), 0
        for number, (value, body) in enumerate(
            [("1", b"a"), ("1", b"b"), ("2", b"b"), (None, b""), (None, b""), ("1", b"a"), ("3", LARGE), ("4", LARGE)]
            * 3
        ):
            properties: dict[str, Any] = {} if value is None else {"order": value}
            # Every message has its own MessageId, or none.
            identity = f"m{number}" if number % 2 else None
            await scene.send("q", message(identity, body, properties))
            key = counted(detection_key, identity, properties, body)
            judged = Message(None if key is None else str(key), scene.time.now, number, 60 * SECOND)
            expected += reference.batch([judged], scene.time.now)[judged].is_duplicate
            scene.time.advance(7)
        assert expected
        assert (await scene.counts()).duplicates == expected

    play(tmp_path, plot)


def test_the_record_says_which_id_counted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("p", detects=True, detection_key="property:order")
        await scene.queue("b", detects=True, detection_key="body")
        await scene.queue("m", detects=True)
        for path in "pbm":
            await scene.send(path, message("1", b"x", {"order": "o" * 200}), message("1", b"x", {"order": "o" * 200}))
        (by_property,), (by_body,), (by_id,) = [await scene.duplicates(path) for path in "pbm"]
        assert (by_property.message_id, by_property.counted_by) == ("1", "property:order")
        assert by_property.counted_id == "o" * 127 + "…"
        assert (by_body.counted_by, len(by_body.counted_id or "")) == ("body", 32)
        assert (by_id.counted_by, by_id.counted_id) == (None, None)

    play(tmp_path, plot)


@pytest.mark.parametrize("body", [b"small", LARGE])
def test_a_forwarded_message_counts_by_the_key_of_its_target(tmp_path: Path, body: bytes) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", detects=True, detection_key="body")
        await scene.queue("source", forward_to="target")
        await scene.send("source", message("a", body), message("b", body), message("c", body + b"!"))
        await scene.rounds(2)
        assert await scene.taken("target") == ["a", "c"]
        assert (await scene.counts("target")).duplicates == 1

    play(tmp_path, plot)


@pytest.mark.parametrize("body", [b"small", LARGE])
def test_the_messages_of_a_transaction_with_settlements_count_by_their_bodies(tmp_path: Path, body: bytes) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, detection_key="body")
        await scene.send("q", message("first", body))
        (received,) = await scene.receive()
        client = Client(scene)
        client.send("q", "again", body=body)
        assert await client.settle(received) is Outcome.DONE
        await client.commit()
        assert (await scene.counts()).duplicates == 1
        assert await scene.taken() == []

    play(tmp_path, plot)


def test_an_id_is_forgotten_by_the_property_that_counts(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("p", detects=True, detection_key="property:order")
        await scene.queue("b", detects=True, detection_key="body")
        await scene.send("p", message("1", user={"order": 42}), message("2", user={"order": "other"}))
        await scene.broker.forget("p", "42")
        await scene.send("p", message("3", user={"order": "42"}), message("4", user={"order": "other"}))
        assert await scene.taken("p") == ["1", "2", "3"]
        with pytest.raises(InvalidOperation, match="'b' detects duplicates by their bodies"):
            await scene.broker.forget("b", "42")

    play(tmp_path, plot)
