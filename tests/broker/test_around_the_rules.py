"""Numbers, times, quotas and counts around the rules."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.errors import ServerBusy
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.engine.inbox.segment import HEADER_BYTES
from oncebus.engine.store import Action, Counts, Outcome
from oncebus.model.entities import (
    NO_LIMIT,
    BadRequest,
    EntityDisabled,
    EntityStatus,
    FalseFilter,
    NotFound,
    QuotaExceeded,
    Rule,
    SqlFilter,
)
from oncebus.model.messages import NOBODY
from oncebus.values.durations import LAST_MOMENT
from tests.broker.in_process import SHARDS
from tests.broker.scenes import DEAD, HOUR, SECOND, Scene, ids, message, play, scene, sequences


def test_numbers_start_at_one_and_duplicates_leave_gaps(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.queue("other")
        assert await scene.send("q", "a", "a", "b") == [1, 2, 3]
        assert await scene.send("other", "a") == [1]
        assert sequences(await scene.receive()) == [1, 3]

    play(tmp_path, plot)


def test_a_scheduled_message_gets_a_new_number_and_time_when_it_falls_due(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        at = scene.time.now + HOUR
        assert await scene.send("q", message("later", scheduled=at), "now") == [1, 2]
        assert await scene.taken() == ["now"]
        scene.time.advance(3599)
        await scene.rounds()
        assert await scene.receive() == []
        await scene.later(3)
        [due] = await scene.receive()
        assert (due.message.sequence, due.message.message_id) == (3, "later")
        assert due.message.enqueued == at + 2 * SECOND
        assert await scene.send("q", "next") == [4]

    play(tmp_path, plot)


def test_a_time_that_has_passed_schedules_nothing(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("a", scheduled=scene.time.now), message("b", scheduled=1))
        assert await scene.taken() == ["a", "b"]

    play(tmp_path, plot)


def test_a_subscription_numbers_its_own_copies_and_keeps_the_topics_number(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        rules = [Rule("even", SqlFilter("even = TRUE"))]
        path = await scene.subscription(rules=rules)
        await scene.send("t", *(message(f"m{n}", user={"even": n % 2 == 0}) for n in range(1, 7)))
        found = await scene.receive(path)
        assert [(each.message.sequence, each.message.enqueued_sequence) for each in found] == [(1, 2), (2, 4), (3, 6)]

    play(tmp_path, plot)


@pytest.mark.parametrize(
    ("given", "default", "lives"),
    [(10 * SECOND, None, 10), (None, 20 * SECOND, 20), (10 * SECOND, 20 * SECOND, 10), (30 * SECOND, 20 * SECOND, 20)],
)
def test_time_to_live_counts_from_acceptance(
    tmp_path: Path, given: int | None, default: int | None, lives: int
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(default_message_time_to_live=NO_LIMIT if default is None else default)
        # The time in the pipeline counts.
        scene.pipeline.is_paused = True
        await scene.send("q", message("a", ttl=given))
        scene.time.advance(lives - 1)
        scene.pipeline.is_paused = False
        assert await scene.peeked() == ["a"]
        scene.time.advance(1)
        assert await scene.receive() == []
        await scene.rounds()
        assert (await scene.counts()).active == 0

    play(tmp_path, plot)


def test_the_quota_counts_what_is_in_the_pipeline(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue(max_size_in_megabytes=1024)
        small = replace(queue, max_size_in_megabytes=1)
        scene.core.catalogues.current = replace(scene.core.catalogues.current, entities={"q": small})
        scene.pipeline.is_paused = True
        body = bytes(60_000)
        for number in range(17):
            await scene.send("q", message(f"m{number}", body))
        with pytest.raises(QuotaExceeded, match="maximum entity size has been reached or exceeded for Queue: 'q'"):
            await scene.send("q", message("more", body))
        scene.pipeline.is_paused = False
        await scene.flow()
        assert scene.core.accounting.in_pipeline(queue.id) == 0
        with pytest.raises(QuotaExceeded):
            await scene.send("q", message("more", body))
        await scene.taken()
        await scene.rounds()
        await scene.send("q", message("more", body))

    play(tmp_path, plot)


def test_a_message_is_scheduled_no_later_than_dates_can_be_written(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", message("a", scheduled=2**63 - 1))
        await scene.flow()
        [found] = await scene.broker.peek(Address("q"), 0, 1)
        assert found.message.scheduled == LAST_MOMENT

    play(tmp_path, plot)


def test_scheduled_messages_count_for_the_quota_as_soon_as_they_have_come_through(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        for name in ("queue", "topic"):
            entity = await (scene.queue(name) if name == "queue" else scene.topic(name))
            await scene.send(name, message("a", bytes(1000), scheduled=scene.time.now + HOUR))
            held = scene.broker.held(entity)
            await scene.flow()
            assert scene.broker.held(entity) == held > 1000

    play(tmp_path, plot)


def test_the_limit_of_the_pipeline_counts_what_the_disk_holds(tmp_path: Path) -> None:
    """A small message that is alone in its commit takes many times its size."""
    limit = 40_000

    async def fill(scene: Scene) -> None:
        with suppress(ServerBusy):
            while True:
                await scene.send("q", message("a", b"small"))

    async def run() -> None:
        async with scene(tmp_path, most_bytes=limit) as first:
            await first.queue()
            first.pipeline.is_paused = True
            await first.send("q", message("large", bytes(100)))
            await first.send("q", *(message(f"m{number}") for number in range(9)))
            await fill(first)
            # Everything except the segment's header; the last commit filled it up to the limit.
            disk, counted = first.core.entrance.acceptor.size - HEADER_BYTES, first.core.accounting.in_inbox
            assert disk == counted
            # A queue that is used alone gets half of the limit.
            assert limit / 2 - 2_000 < disk < limit / 2 + 2_000
            payload = first.core.accounting.in_pipeline(first.broker.catalogue.queue("q").id)
            assert payload < limit / 8
        # It counts the same after a restart.
        broker = await Broker.open(Engine.files(Folders(tmp_path), SHARDS))
        assert broker._core.accounting.in_inbox == counted
        await broker.close()
        async with scene(tmp_path, most_bytes=limit) as second:
            await second.flow()
            assert second.core.accounting.in_inbox == 0
            second.pipeline.is_paused = True
            before = second.core.entrance.acceptor.size
            await fill(second)
            assert limit / 2 - 2_000 < second.core.entrance.acceptor.size - before < limit / 2 + 2_000

    asyncio.run(run())


def test_a_body_in_a_file_counts_once_for_the_limit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", message("a", bytes(100_000)))
        assert 100_000 < scene.core.accounting.in_inbox < 104_000

    play(tmp_path, plot)


def test_the_whole_pipeline_has_a_limit(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", message("a", bytes(900)))
        with pytest.raises(ServerBusy, match="The server is busy"):
            await scene.send("q", message("b", bytes(900)))
        scene.pipeline.is_paused = False
        await scene.flow()
        await scene.send("q", message("b", bytes(900)))

    play(tmp_path, plot, most_bytes=1500)


@pytest.mark.parametrize(
    ("status", "may_send", "may_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_the_status_of_an_entity_is_checked(
    tmp_path: Path, status: EntityStatus, may_send: bool, may_receive: bool
) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue()
        await scene.send("q", "a")
        await scene.flow()
        changed = replace(queue, status=status)
        await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        for allowed, attempt in ((may_send, scene.send("q", "b")), (may_receive, scene.receive())):
            if allowed:
                await attempt
            else:
                with pytest.raises(EntityDisabled, match="'q' is currently disabled"):
                    await attempt

    play(tmp_path, plot)


def test_a_topic_without_a_matching_subscription_accepts_remembers_and_counts(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        await scene.send("t", "a")
        await scene.flow()
        path = await scene.subscription(rules=[Rule("none", FalseFilter())])
        await scene.send("t", "b")
        await scene.flow()
        await scene.broker.change(lambda catalogue, now: catalogue.create_rule("t", "s", Rule("all"), now))
        await scene.send("t", "a", "b", "c")
        counts = await scene.counts("t")
        assert (counts.new, counts.unrouted, counts.duplicates) == (3, 2, 2)
        assert await scene.taken(path) == ["c"]

    play(tmp_path, plot)


def test_rows_in_flight_to_a_deleted_entity_are_discarded_and_counted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        queue = await scene.queue()
        scene.pipeline.is_paused = True
        await scene.send("q", "a", "b")
        await scene.delete_queue()
        await scene.queue()
        scene.pipeline.is_paused = False
        assert await scene.receive() == []
        assert (await scene.core.store.run(lambda store: store.entities.counts(NOBODY))).discarded == 2
        # Nothing is kept that nobody can query.
        assert await scene.core.store.run(lambda store: store.entities.counts(queue.id)) == Counts()
        assert queue.id not in {
            each.entity for each in await scene.core.store.run(lambda store: store.progress.highest())
        }
        assert scene.core.accounting.in_pipeline(queue.id) == 0

    play(tmp_path, plot)


def test_requests_for_a_missing_entity_or_one_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription()
        with pytest.raises(NotFound, match="'nowhere' could not be found"):
            await scene.send("nowhere", "a")
        with pytest.raises(BadRequest, match="not to its subscription"):
            await scene.send(path, "a")
        with pytest.raises(BadRequest, match="received from a subscription"):
            await scene.receive("t")
        with pytest.raises(BadRequest, match="empty"):
            await scene.send("t")

    play(tmp_path, plot)


def test_a_dead_letter_that_is_resubmitted_goes_past_detection(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "a")
        [received] = await scene.receive()
        await scene.settle("q", received, Action.DEAD_LETTER, reason="why")
        assert await scene.broker.resubmit("q", [received.message.sequence]) == [Outcome.DONE]
        [again] = await scene.receive()
        assert (again.message.message_id, again.message.sequence, again.message.deliveries) == ("a", 2, 1)
        # The same id from a client goes through detection as usual.
        assert await scene.send("q", "a") == [3]
        assert (await scene.counts()).duplicates == 1
        assert ids(await scene.broker.peek(Address("q", DEAD), 0, 10)) == []

    play(tmp_path, plot)
