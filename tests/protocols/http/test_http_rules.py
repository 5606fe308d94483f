"""Each rule of duplicate detection over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncebus.model.entities import BadRequest, Queue, Tier
from oncebus.values.durations import MINUTE, SECOND
from tests.protocols.http.http_front import BATCH, Front, in_path, scenario

DETECTING: dict[str, Any] = {"requires_duplicate_detection": True}


def test_rule_1_detection_is_off_unless_chosen_and_a_topic_is_checked_once_before_fan_out(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("plain")
        await front.topic("news", "one", "two", **DETECTING)
        for entity in ("plain", "news"):
            for _ in range(2):
                assert (await front.send(entity, MessageId="1")).status == 201
        assert await front.take_all("plain") == ["1", "1"]
        for subscription in ("one", "two"):
            assert await front.take_all(f"news/subscriptions/{subscription}") == ["1"]
        assert (await front.broker.counts("news")).duplicates == 1

    scenario(tmp_path, play)


def test_rule_2_the_window_may_be_changed_and_the_shorter_of_two_counts(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING, duplicate_detection_history_time_window=10 * MINUTE)
        await front.send("orders", MessageId="1")
        await front.broker.change(
            lambda catalogue, now: catalogue.update(
                Queue(name="orders", **DETECTING, duplicate_detection_history_time_window=20 * SECOND), now
            )
        )
        front.time.advance(19)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == ["1"]
        front.time.advance(1)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == ["1"]

    scenario(tmp_path, play)


def test_rule_3_a_duplicate_is_answered_like_the_first_and_never_delivered_whatever_its_body(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        first = await front.send("orders", b"first", MessageId="1")
        second = await front.send("orders", b"second", MessageId="1")
        assert (first.status, first.headers, first.body) == (second.status, second.headers, second.body)
        answer = await front.take("orders")
        assert (answer.status, answer.body) == (200, b"first")
        assert await front.take_all("orders") == []

    scenario(tmp_path, play)


def test_rule_4_a_key_is_new_exactly_one_window_after_the_first_was_accepted_received_or_not(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING, duplicate_detection_history_time_window=20 * SECOND)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == ["1"]
        front.time.advance(19.999999)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == []
        front.time.advance(0.000001)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == ["1"]

    scenario(tmp_path, play)


def test_rule_5_a_queue_made_again_has_forgotten_and_a_partition_key_is_part_of_the_key(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        await front.send("orders", MessageId="1")
        await front.broker.change(lambda catalogue, now: catalogue.delete(Queue(name="orders")))
        await front.queue(**DETECTING)
        await front.send("orders", MessageId="1")
        assert await front.take_all("orders") == ["1"]

        await front.queue("parts", **DETECTING, enable_partitioning=True)
        for key in ("a", "b", "a"):
            await front.send("parts", MessageId="1", PartitionKey=key)
        assert await front.take_all("parts") == ["1", "1"]
        refused = await front.send("parts", MessageId="2", SessionId="s", PartitionKey="p")
        assert refused.status == 400
        assert "PartitionKey:p cannot be set to a different value than SessionId:s." in refused.text

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    "identity", ["12345.2017/Payment", "ödeme", "a b", "%2F", "x" * 128, "日本\u3000語", "😀" * 64]
)
def test_rule_6_ids_are_compared_exactly(tmp_path: Path, identity: str) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        for each in (identity, identity, identity.swapcase()):
            assert (await front.send("orders", MessageId=each)).status == 201
        assert await front.take_all("orders") == list(dict.fromkeys([identity, identity.swapcase()]))
        page = await front.ask("GET", "/orders/$duplicates", query=f"message-id={in_path(identity)}")
        assert {drop["messageId"] for drop in page.json["duplicates"]} == {identity}

    scenario(tmp_path, play)


@pytest.mark.parametrize("name", ["MessageId", "SessionId", "PartitionKey"])
def test_rule_6_ids_above_128_utf_16_units_are_refused(tmp_path: Path, name: str) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        refused = await front.send("orders", **{name: "😀" * 64 + "x"})
        assert refused.status == 400
        assert f"The argument '{name}' cannot exceed 128 characters." in refused.text
        assert (await front.broker.counts("orders")).new == 0

    scenario(tmp_path, play)


def test_rule_7_a_message_without_an_id_gets_a_fresh_one_and_is_never_a_duplicate(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        for _ in range(3):
            assert (await front.send("orders")).status == 201
        assert len(set(await front.take_all("orders"))) == 3

    scenario(tmp_path, play)


def test_rule_8_within_a_batch_the_first_wins_and_scheduled_messages_take_part_at_once(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        batch = (
            b'[{"Body":"a","BrokerProperties":{"MessageId":"1"}},{"Body":"b","BrokerProperties":{"MessageId":"2"}},'
            b'{"Body":"c","BrokerProperties":{"MessageId":"1"}}]'
        )
        assert (await front.ask("POST", "/orders/messages", batch, {"Content-Type": BATCH})).status == 201
        assert [(await front.take("orders")).body for _ in range(2)] == [b"a", b"b"]
        await front.send("orders", MessageId="3", ScheduledEnqueueTimeUtc="Mon, 21 Sep 2099 14:13:20 GMT")
        await front.send("orders", MessageId="3")
        counts = await front.broker.counts("orders")
        assert (counts.active, counts.scheduled, counts.duplicates) == (0, 1, 2)

    scenario(tmp_path, play)


def test_rule_9_a_tier_says_what_there_is(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        with pytest.raises(BadRequest, match="Basic"):
            await front.queue(**DETECTING)
        await front.queue()
        refused = await front.send("orders", SessionId="s")
        assert refused.status == 400
        assert "is using 'Basic' tier" in refused.text

    scenario(tmp_path, play, tier=Tier.BASIC)


def test_rule_10_every_drop_can_be_seen(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(**DETECTING)
        await front.send("orders", MessageId="1")
        front.time.advance(1.5)
        await front.send("orders", MessageId="1")
        page = (await front.ask("GET", "/orders/$duplicates")).json
        assert page == {
            "entity": "orders",
            "duplicates": [
                {
                    "record": 1,
                    "messageId": "1",
                    "time": "2026-09-21T14:13:21.500000Z",
                    "sequenceNumber": 2,
                    "original": {"sequenceNumber": 1, "time": "2026-09-21T14:13:20.000000Z"},
                }
            ],
            "next": None,
        }
        metrics = (await front.ask("GET", "/metrics")).text
        assert 'oncebus_messages_duplicates_total{entity="orders",kind="queue"} 1.0\n' in metrics
        assert 'oncebus_messages_new_total{entity="orders",kind="queue"} 1.0\n' in metrics

    scenario(tmp_path, play)
