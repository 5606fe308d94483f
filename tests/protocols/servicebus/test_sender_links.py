"""Senders, frame by frame."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.message import BATCH_FORMAT
from oncebus.amqp.outcomes import Accepted, Rejected
from oncebus.amqp.performatives import Flow
from oncebus.amqp.types import Symbol
from oncebus.broker import shares
from oncebus.broker.addresses import Address
from oncebus.broker.sending import Incoming
from oncebus.broker.shares import Shares
from oncebus.engine.inbox import InboxError, InboxWriter
from oncebus.engine.store import Mode
from oncebus.model.entities import BadRequest
from oncebus.protocols.servicebus import AmqpLimits, sender
from oncebus.protocols.servicebus.messages import incoming, incoming_message

from .bus import PATIENCE
from .raw import Stage, message, play, to


async def bodies(stage: Stage, count: int, queue: str = "orders") -> list[bytes]:
    """Receive `count` messages of a queue and return their bodies."""
    found: list[bytes] = []
    while len(found) < count:
        received = await stage.broker.receive(Address(queue), count, mode=Mode.RECEIVE_AND_DELETE, wait=10)
        assert received
        found += [content for each in received if isinstance(content := amqp.decode_body(each.body), bytes)]
    return found


def test_only_the_bad_transfer_among_many_is_rejected(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        good = [message(str(number).encode()) for number in range(40)]
        payloads = [*good[:17], message(b"bad", message_id="x" * 129), *good[17:30], b"\x00\x53\x75", *good[30:]]
        ids = client.transfer(*payloads)
        outcomes = await client.outcomes(len(ids))
        refused = {number: state for number, state in outcomes.items() if state != Accepted()}
        assert {number: state.error.condition for number, state in refused.items()} == {
            17: "com.microsoft:argument-out-of-range",
            31: "amqp:decode-error",
        }
        assert await bodies(stage, 40) == [str(number).encode() for number in range(40)]
        # Transfers that come together are one commit of the inbox, except the halves with the bad one.
        assert stage.broker.pipeline.last_commit < 15

    play(tmp_path, scenario)


def test_a_batch_is_accepted_completely_or_not_at_all(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        inner = [message(b"a"), message(b"b", message_id="x" * 129)]
        bad = b"".join(amqp.encode_body(each) for each in inner)
        good = b"".join(amqp.encode_body(message(each)) for each in (b"c", b"d"))
        client.transfer(bad, good, b"", message_format=BATCH_FORMAT)
        outcomes = await client.outcomes(3)
        assert isinstance(outcomes[0], Rejected)
        assert outcomes[1] == Accepted()
        assert outcomes[2].error.description == "The batch of messages is empty."
        assert await bodies(stage, 2) == [b"c", b"d"]

    play(tmp_path, scenario)


def test_the_number_of_messages_in_a_batch_is_limited(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        # An empty message takes five bytes of a batch and has size 0.
        empty = b"\x00\x53\x75\xa0\x00"
        client.transfer(empty * 4501, message_format=BATCH_FORMAT)
        refused = (await client.outcomes(1))[0]
        assert refused.error.condition == "com.microsoft:argument-error"
        assert refused.error.description == "The batch holds more than 4500 messages, which is the limit."
        client.transfer(empty * 4500, message_format=BATCH_FORMAT)
        assert list((await client.outcomes(1)).values()) == [Accepted()]
        with pytest.raises(BadRequest, match="4501 messages, 4500 is the limit"):
            await stage.broker.send("orders", [incoming_message(b"")] * 4501)

    play(tmp_path, scenario)


@pytest.mark.parametrize("message_format", [0, BATCH_FORMAT], ids=["message", "batch"])
def test_a_far_too_large_message_is_refused_without_being_parsed(
    tmp_path: Path, message_format: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def note(payload: bytes, message_format: int) -> list[Incoming]:
        read.append(len(payload))
        return incoming(payload, message_format)

    monkeypatch.setattr(sender, "incoming", note)

    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        piece = amqp.encode_body(message(bytes(60_000)))
        for number in range(10):
            client.part(piece, more=number < 9, message_format=message_format)
        refused = (await client.outcomes(1))[0]
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert str(10 * len(piece)) in refused.error.description
        assert read == []

    play(tmp_path, scenario)


def test_a_settled_transfer_is_not_answered(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        client.transfer(message(b"a"), b"no message", message(b"b"), settled=True)
        (last,) = client.transfer(message(b"c"))
        assert await client.outcomes(1) == {last: Accepted()}
        assert await bodies(stage, 3) == [b"a", b"b", b"c"]

    play(tmp_path, scenario)


def test_transfers_larger_together_than_a_batch_may_be_are_all_accepted(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        answer = await client.attached(to("orders"))
        assert answer.max_message_size == 256 * 1024
        assert (answer.properties or {}).get(Symbol("com.microsoft:max-message-batch-size")) == 256 * 1024
        # No frame is larger than 64 KB.
        client.transfer(*[message(bytes([number]) * 60_000) for number in range(7)])
        assert list((await client.outcomes(7)).values()) == [Accepted()] * 7
        assert [body[:1] for body in await bodies(stage, 7)] == [bytes([number]) for number in range(7)]

    play(tmp_path, scenario)


def test_credit_is_granted_at_once_and_renewed_before_it_is_used_up(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        flow, _ = await client.next(Flow)
        assert flow.link_credit == 10
        for _ in range(5):
            client.transfer(*[message()] * 6)
            await client.outcomes(6)
            flow, _ = await client.next(Flow)
            assert flow.link_credit == 10

    play(tmp_path, scenario, AmqpLimits(credit=10))


def test_a_client_that_sends_more_than_can_be_made_durable_is_not_read_for_a_while(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        client.transfer(*[message(bytes(1000))] * 5)
        assert client.wire.is_paused
        await client.outcomes(5)
        assert not client.wire.is_paused

    play(tmp_path, scenario, AmqpLimits(bytes_under_way=3000))


def test_received_transfers_are_sent_even_if_the_client_has_disconnected(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        client.transfer(message(b"a"), message(b"b"))
        client.lose()
        assert await bodies(stage, 2) == [b"a", b"b"]

    play(tmp_path, scenario)


def test_an_invalid_link_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        assert await client.refused(to(None)) == ("com.microsoft:argument-error", "The link has no address.")
        assert (await client.refused(to("orders/$DeadLetterQueue")))[0] == "com.microsoft:argument-error"

    play(tmp_path, scenario)


def test_refusals_are_recorded(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        ids = client.transfer(message(b"good"), message(b"bad", message_id="x" * 129))
        await client.outcomes(len(ids))
        entity = stage.broker.catalogue.queue("orders")
        assert stage.broker.refusals.counts(entity.id) == {"invalid": 1}

    play(tmp_path, scenario)


def test_a_group_beyond_the_share_is_refused_at_once_and_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MOST_WAITING", 0)
    waited = []

    def has_room(self: Shares, entity: int, work: int) -> bool:
        waited.append(work)
        return False

    monkeypatch.setattr(Shares, "has_room", has_room)

    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        ids = client.transfer(*(message(str(number).encode()) for number in range(40)))
        outcomes = await client.outcomes(len(ids))
        conditions = {
            state.error.condition for state in outcomes.values() if isinstance(state, Rejected) and state.error
        }
        assert conditions == {"com.microsoft:server-busy"}
        # It is not split: its halves would have to wait as long again.
        assert len(waited) < 10
        entity = stage.broker.catalogue.queue("orders")
        assert stage.broker.refusals.counts(entity.id) == {"busy": 40}

    play(tmp_path, scenario)


def test_a_transfer_does_not_overtake_one_that_is_sent_apart_because_of_its_size(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        # Its body gets a file, so it waits for the disk. The next one does not fit into the same call.
        large = message(b"A" * 220 * 1024)
        for at in range(0, len(large), 60_000):
            client.part(large[at : at + 60_000], more=at + 60_000 < len(large))
        client.transfer(message(b"B" * 60 * 1024))
        await client.outcomes(2)
        assert [each[:1] for each in await bodies(stage, 2)] == [b"A", b"B"]

    play(tmp_path, scenario)


def test_a_transfer_does_not_overtake_those_that_are_sent_apart_because_of_a_bad_one(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        good = [message(bytes([65 + number]) * 60_000) for number in range(5)]
        client.transfer(message(b"bad", message_id="x" * 129), *good)
        await client.outcomes(6)
        assert [each[:1] for each in await bodies(stage, 5)] == [b"A", b"B", b"C", b"D", b"E"]

    play(tmp_path, scenario)


def test_transfers_whose_commit_fails_are_refused_and_not_sent_again_behind_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        began, go_on = threading.Event(), threading.Event()
        append = InboxWriter.append

        def fails_once(self: InboxWriter, *given: Any) -> Any:
            if began.is_set():
                return append(self, *given)
            began.set()
            assert go_on.wait(PATIENCE)
            raise InboxError("Inbox cannot be written: Input/output error")

        monkeypatch.setattr(InboxWriter, "append", fails_once)
        client.transfer(message(b"A"), message(b"B"))
        await asyncio.to_thread(began.wait, PATIENCE)
        client.transfer(message(b"C"))
        await asyncio.sleep(0)
        go_on.set()
        outcomes = await client.outcomes(3)
        assert [type(outcome) for _, outcome in sorted(outcomes.items())] == [Rejected, Rejected, Accepted]
        assert await bodies(stage, 1) == [b"C"]

    play(tmp_path, scenario)
