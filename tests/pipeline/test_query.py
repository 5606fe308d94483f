"""The query on Spark delivers each message from the broker to the store once, even if the query stops and restarts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.errors import ServerBusy
from oncebus.broker.sending import Incoming
from oncebus.engine.folders import Folders
from oncebus.engine.store import Mode
from oncebus.model.entities import Queue, Rule, SqlFilter, Subscription, Topic
from oncebus.pipeline.query import QueryNotStarted, start_query
from tests.broker.in_process import SHARDS, running_broker


def message(identity: str, colour: str = "red", body: bytes = b"hello") -> Incoming:
    head, encoded = amqp.encode_message(amqp.Properties(message_id=identity), {"colour": colour}, body)
    return Incoming(head, encoded, identity)


def started(spark: SparkSession, data: Path) -> StreamingQuery:
    return start_query(spark, Folders(data), shards=SHARDS, tasks=2)


async def ids(broker: Broker, path: str) -> list[str]:
    found = await broker.receive(Address(path), 1000, mode=Mode.RECEIVE_AND_DELETE)
    return [each.message.message_id for each in found]


async def send(broker: Broker, ids: list[str]) -> None:
    """Send until the broker accepts it, as a client does: it may be busy as long as it learns that no query runs."""
    while True:
        with suppress(ServerBusy):
            await broker.send("q", [message(each) for each in ids])
            return


async def seen(broker: Broker) -> None:
    assert await broker.pipeline.wait_for(broker.pipeline.last_commit, 60), "the query makes no progress"


def test_messages_are_judged_and_routed_on_spark_across_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_broker(tmp_path, pipeline=False) as broker:
            await broker.change(
                lambda catalogue, now: catalogue.create(Queue(name="q", requires_duplicate_detection=True), now)
            )
            await broker.change(lambda catalogue, now: catalogue.create(Topic(name="t"), now))
            red = Rule("red", SqlFilter("colour = 'red'"))
            everything, some = Subscription(topic="t", name="all"), Subscription(topic="t", name="red")
            await broker.change(lambda catalogue, now: catalogue.create(everything, now))
            await broker.change(lambda catalogue, now: catalogue.create(some, now, [red]))
            await broker.send("q", [message("a"), message("b"), message("a")])
            query = await asyncio.to_thread(started, spark, tmp_path)
            large = b"x" * 200_000
            await broker.send("t", [message("1", "red"), message("2", "blue")])
            await broker.send("q", [message("large", body=large)])
            await seen(broker)
            await asyncio.to_thread(query.stop)

            await broker.send("q", [message("b"), message("c")])
            # More rows than fit into one task, sent while no query runs.
            await asyncio.gather(*(send(broker, [f"m{at}-{of}" for of in range(50)]) for at in range(120)))
            query = await asyncio.to_thread(started, spark, tmp_path)
            await seen(broker)
            assert (await ids(broker, "q"))[:4] == ["a", "b", "large", "c"]
            assert len(await broker.duplicates("q")) == 2
            assert await ids(broker, "t/Subscriptions/all") == ["1", "2"]
            assert await ids(broker, "t/Subscriptions/red") == ["1"]
            rest = [identity for _ in range(6) for identity in await ids(broker, "q")]
            assert len(set(rest)) == len(rest) == 120 * 50 - 996
            await asyncio.to_thread(query.stop)

    asyncio.run(scenario())


def test_a_checkpoint_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """As on a full disk: there Java says "No space left on device", and nothing more."""
    folders = Folders(tmp_path)
    folders.make()
    folders.checkpoint.write_text("not a folder")
    with pytest.raises(QueryNotStarted) as raised:
        started(spark, tmp_path)
    before, _, reason = str(raised.value).partition(": ")
    assert before == f"Spark cannot start a query with checkpoint '{folders.checkpoint}'"
    assert reason
    assert "\n" not in reason
