"""Sending, receiving and settling messages."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.amqp.types import Timestamp, UInt
from oncebus.broker.addresses import Address
from oncebus.broker.sending import Incoming
from oncebus.model.entities import EntityStatus, Queue, Tier
from tests.protocols.http.http_front import BATCH, HOST, Front, Shared, in_path, scenario


def test_a_message_is_locked_renewed_unlocked_and_completed(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        sent = await front.send(
            "orders", b"\x00\xff", {"Content-Type": "application/x-thing"}, MessageId="m", Label="L"
        )
        assert (sent.status, sent.body) == (201, b"")
        held = await front.peek_lock("orders")
        assert (held.status, held.body) == (201, b"\x00\xff")
        assert held.headers["content-type"] == "application/x-thing"
        token = held.properties["LockToken"]
        assert held.headers["location"] == f"http://{HOST}/orders/messages/1/{token}"
        assert held.properties == {
            "DeliveryCount": 1,
            "EnqueuedSequenceNumber": 1,
            "EnqueuedTimeUtc": "Mon, 21 Sep 2026 14:13:20 GMT",
            "Label": "L",
            "LockToken": token,
            "LockedUntilUtc": "Mon, 21 Sep 2026 14:14:20 GMT",
            "MessageId": "m",
            "SequenceNumber": 1,
            "State": "Active",
            "TimeToLive": 922337203685.47754,
        }
        assert (await front.peek_lock("orders", wait=0)).status == 204
        front.time.advance(30)
        renewed = await front.ask("POST", held.lock)
        assert renewed.status == 200
        assert renewed.properties == {"LockToken": token, "LockedUntilUtc": "Mon, 21 Sep 2026 14:14:50 GMT"}
        assert (await front.ask("PUT", held.lock)).status == 200
        again = await front.peek_lock("orders")
        assert again.properties["DeliveryCount"] == 2
        assert (await front.ask("DELETE", again.lock)).status == 200
        for method in ("DELETE", "PUT", "POST"):
            gone = await front.ask(method, again.lock)
            assert (gone.status, "The lock supplied is invalid." in gone.text) == (404, True)
        assert (await front.broker.counts("orders")).active == 0

    scenario(tmp_path, play)


def test_an_expired_lock_settles_nothing(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.send("orders")
        held = await front.peek_lock("orders")
        front.time.advance(60)
        assert (await front.ask("DELETE", held.lock)).status == 404
        assert (await front.peek_lock("orders")).properties["DeliveryCount"] == 2

    scenario(tmp_path, play)


@pytest.mark.parametrize("identity", ["12345.2017/Payment", "ö d/e#m?e", "%2F", "head", "messages", "..", "a%20b", "+"])
def test_a_locked_message_is_settled_by_any_id(tmp_path: Path, identity: str) -> None:
    async def play(front: Front) -> None:
        await front.queue("region/orders")
        await front.send("region/orders", MessageId=identity)
        held = await front.peek_lock("region%2Forders")
        assert held.properties["MessageId"] == identity
        path = f"/region/orders/messages/{in_path(identity)}/{held.properties['LockToken']}"
        for method in ("POST", "DELETE"):
            assert (await front.ask(method, path)).status == 200
        assert (await front.broker.counts("region/orders")).active == 0

    scenario(tmp_path, play)


def test_entities_are_found_by_paths_with_any_words_in_them(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for name in ("messages", "a/messages", "a/messages/head", "health", "metrics"):
            await front.queue(name)
            assert (await front.send(name, MessageId=name)).status == 201
            assert (await front.ask("DELETE", f"/{name}/Messages/HEAD/")).properties["MessageId"] == name
        await front.topic("news", "All.News")
        await front.send("NEWS", MessageId="1")
        assert await front.take_all("news/Subscriptions/all.news") == ["1"]

    scenario(tmp_path, play)


def test_dead_letters_are_received_with_their_reason_and_settled(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(max_delivery_count=1)
        await front.send("orders", MessageId="1")
        await front.ask("PUT", (await front.peek_lock("orders")).lock)
        dead = await front.peek_lock("orders/$deadletterqueue")
        assert (dead.status, dead.properties["MessageId"], dead.properties["DeliveryCount"]) == (201, "1", 2)
        assert dead.headers["deadletterreason"] == '"MaxDeliveryCountExceeded"'
        assert "/orders/$deadletterqueue/messages/1/" in dead.headers["location"]
        assert (await front.ask("DELETE", dead.lock)).status == 200
        refused = await front.send("orders/$DeadLetterQueue")
        assert (refused.status, "dead letters" in refused.text) == (400, True)

    scenario(tmp_path, play)


def test_all_broker_properties_come_back(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        given = {
            "MessageId": "ödeme 😀",
            "SessionId": "s",
            "PartitionKey": "s",
            "Label": 'a "label"',
            "CorrelationId": "c",
            "To": "http://contoso.com",
            "ReplyTo": "r",
            "ReplyToSessionId": "rs",
            "TimeToLive": 90.5,
            "Unknown": {"is": ["ignored"]},
        }
        assert (await front.send("orders", **given)).status == 201
        answer = await front.take("orders")
        del given["Unknown"]
        assert {name: answer.properties[name] for name in given} == given
        assert "LockToken" not in answer.properties
        assert "location" not in answer.headers

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"High"', "High"),
        ('"12345,ABC"', "12345,ABC"),
        (r'"a \"quoted\" \\ word"', 'a "quoted" \\ word'),
        (r'"C:\temp"', r"C:\temp"),
        (r'"\u00f6 \ud83d\ude00"', "ö 😀"),
        ("ödeme", "ödeme"),
        ("plain words", "plain words"),
        ("3", 3),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", 9223372036854775808.0),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ('"true"', "true"),
        ('"3"', "3"),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Timestamp(784111777000)),
        ("1994-11-06T08:49:37.250Z", Timestamp(784111777250)),
        ('"Sun, 06 Nov 1994 08:49:37 GMT"', "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("", ""),
        ('"', '"'),
        ("1e9999", "1e9999"),
    ],
)
def test_a_header_is_a_property_of_its_type_and_comes_back_as_one(shared: Shared, written: str, value: object) -> None:
    async def play(front: Front) -> None:
        for _ in range(2):
            await front.send("props", b"", {"My-Property": written, "User-Agent": "x", "x-ms-retrypolicy": "NoRetry"})
        (first, *_) = await front.broker.peek(Address("props"), 0, 1)
        found = amqp.application_properties(first.message.head)
        assert found == {"My-Property": value}
        assert type(found["My-Property"]) is type(value)
        shown = (await front.take("props")).headers["my-property"]
        await front.ask("POST", "/props/messages", b"", {"My-Property": shown})
        assert [await front.take("props") for _ in range(2)][1].headers["my-property"] == shown

    shared(play)


def test_a_batch_holds_bodies_properties_and_ids_of_its_own(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        items = [
            {"Body": "ö", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
            {"Body": "two", "UserProperties": {"Priority": "High", "n": 3, "x": 0.5, "ok": True, "none": None}},
            {"Body": base64.b64encode(b"\x00\xff").decode(), "IsBodyBase64": True, "BrokerProperties": None},
            {},
        ]
        sent = await front.ask("POST", "/orders/messages", json.dumps(items).encode(), {"Content-Type": BATCH})
        assert sent.status == 201
        answers = [await front.take("orders") for _ in items]
        assert [answer.body for answer in answers] == ["ö".encode(), b"two", b"\x00\xff", b""]
        assert answers[0].properties["TimeToLive"] == 40
        headers = answers[1].headers
        assert (headers["priority"], headers["n"], headers["x"], headers["ok"]) == ('"High"', "3", "0.5", "true")
        assert "none" not in headers

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        (amqp.AmqpValue("ö"), "text/plain; charset=utf-8", "ö".encode()),
        (amqp.AmqpValue(b"\x00"), "application/octet-stream", b"\x00"),
        (amqp.AmqpValue(None), "application/octet-stream", b""),
        (amqp.AmqpValue({"a": [UInt(1), b"\x00", None]}), "application/json", b'{"a":[1,"AA==",null]}'),
        (amqp.AmqpValue(Timestamp(1)), "application/json", b'"1970-01-01T00:00:00.001000Z"'),
        (amqp.AmqpSequence([1, "x"]), "application/json", b'[1,"x"]'),
        (b"data", "application/octet-stream", b"data"),
    ],
)
def test_bodies_of_other_protocols_are_shown(tmp_path: Path, body: amqp.Body, content_type: str, shown: bytes) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        # The id is a binary, and the name of one property cannot be a header.
        head, encoded = amqp.encode_message(
            amqp.Properties(message_id=b"\x01\xff"), {"a name": "x", "content-length": 3, "fine": "y"}, body
        )
        await front.broker.send("orders", [Incoming(head, encoded, b"\x01\xff")])
        answer = await front.take("orders")
        assert (answer.headers["content-type"], answer.body) == (content_type, shown)
        assert answer.headers["content-length"] == str(len(shown))
        assert (answer.properties["MessageId"], answer.headers["fine"]) == ("01ff", '"y"')

    scenario(tmp_path, play)


def test_a_message_with_invalid_amqp_is_still_delivered(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.broker.send("orders", [Incoming(b"\x00\x53\x73\xc0\x03\x01\xa1\x05", b"junk", "1")])
        answer = await front.take("orders")
        assert (answer.status, answer.body, answer.properties["MessageId"]) == (200, b"junk", "1")

    scenario(tmp_path, play)


def test_a_content_type_that_cannot_be_a_header_is_left_out(tmp_path: Path) -> None:
    # 00 53 73: properties. The seventh is the content type, here as a string.
    head = b"\x00\x53\x73\xc0\x0b\x07\x40\x40\x40\x40\x40\x40\xa1\x02" + "ö".encode()

    async def play(front: Front) -> None:
        await front.queue()
        await front.broker.send("orders", [Incoming(head, amqp.encode_body(b"data"), "1")])
        answer = await front.take("orders")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
        assert answer.body == b"data"

    scenario(tmp_path, play)


def test_a_scheduled_message_comes_when_it_is_due(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.send("orders", MessageId="1", ScheduledEnqueueTimeUtc="Mon, 21 Sep 2026 14:14:20 GMT")
        assert await front.take_all("orders") == []
        front.time.advance(60)
        front.core.wakeups.wake_chores()
        answer = await front.take("orders")
        assert answer.properties["EnqueuedTimeUtc"] == "Mon, 21 Sep 2026 14:14:20 GMT"

    scenario(tmp_path, play)


def test_a_waiting_receiver_gets_a_new_message(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        waiting = asyncio.create_task(front.take("orders"))
        await asyncio.sleep(0)
        await front.send("orders", b"late")
        assert (await waiting).body == b"late"

    scenario(tmp_path, play)


def test_large_messages_pass_up_to_the_limit_of_the_entity(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(max_message_size_in_kilobytes=2048)
        body = bytes(range(256)) * 7000
        half = len(body) // 2
        answer = await front.ask("POST", "/orders/messages", chunks=[body[:half], body[half:]])
        assert answer.status == 201
        assert (await front.take("orders")).body == body
        too_large = b"x" * (2048 * 1024 + 1)
        for chunks in (None, [too_large[:-1], b"xx", b"x"]):
            refused = await front.ask("POST", "/orders/messages", too_large, chunks=chunks)
            assert refused.status == 413
            assert "exceeds the limit (2097152) currently allowed on the entity 'orders'" in refused.text
            assert "connection" not in refused.headers
        endless = await front.ask("POST", "/orders/messages", chunks=[too_large] * 8)
        assert (endless.status, endless.headers["connection"]) == (413, "close")
        assert (await front.broker.counts("orders")).new == 1

    scenario(tmp_path, play, tier=Tier.PREMIUM)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.DISABLED, 403, 403),
        (EntityStatus.SEND_DISABLED, 403, 204),
        (EntityStatus.RECEIVE_DISABLED, 201, 403),
    ],
)
def test_a_disabled_entity_rejects_requests(tmp_path: Path, status: EntityStatus, sends: int, receives: int) -> None:
    async def play(front: Front) -> None:
        await front.queue(status=status)
        sent, received = await front.send("orders"), await front.peek_lock("orders", wait=0)
        assert (sent.status, received.status) == (sends, receives)
        for answer in (sent, received):
            if answer.status == 403:
                detail = "SubCode=40300. Messaging entity 'orders' is currently disabled."
                assert answer.text == f"<Error><Code>403</Code><Detail>{detail}</Detail></Error>"

    scenario(tmp_path, play)


def test_a_queue_deleted_under_a_waiting_receiver_is_not_found(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        waiting = asyncio.create_task(front.take("orders", wait=50.0))
        while not front.core.arrivals._waiting:
            await asyncio.sleep(0.005)
        await front.broker.change(lambda catalogue, now: catalogue.delete(Queue(name="orders")))
        assert (await waiting).status == 404

    scenario(tmp_path, play)


def test_a_full_entity_rejects_sends_and_the_backlog_counts(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        # The service does not allow a queue this small.
        small = replace(front.broker.catalogue.queue("orders"), max_size_in_megabytes=1)
        front.core.catalogues.current = replace(front.core.catalogues.current, entities={"orders": small})
        for _ in range(17):
            assert (await front.send("orders", b"x" * 60_000)).status == 201
        full = await front.send("orders", b"x" * 60_000)
        assert (full.status, full.headers.get("retry-after")) == (403, None)
        held = front.core.accounting.in_pipeline(small.id)
        assert held > 17 * 60_000
        assert full.text == (
            "<Error><Code>403</Code><Detail>SubCode=40300. The maximum entity size has been reached or exceeded for "
            f"Queue: 'orders'. Size of entity in bytes:{held}, Max entity size in bytes:{1 << 20}.</Detail></Error>"
        )

    scenario(tmp_path, play, pipeline=False)


def test_a_busy_broker_refuses(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        assert (await front.send("orders", b"x" * 600)).status == 201
        busy = await front.send("orders", b"x" * 600)
        assert (busy.status, busy.headers["retry-after"]) == (503, "10")
        assert "<Detail>The server is busy: " in busy.text

    scenario(tmp_path, play, pipeline=False, most_bytes=1000)


def test_sessions_are_not_received_over_http(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.broker.change(
            lambda catalogue, now: catalogue.create(Queue(name="orders", requires_session=True), now)
        )
        assert (await front.send("orders", SessionId="s")).status == 201
        without = await front.send("orders")
        refused = await front.peek_lock("orders", wait=0)
        assert (without.status, refused.status) == (400, 400)
        assert "It is not possible for an entity that requires sessions" in refused.text

    scenario(tmp_path, play)
