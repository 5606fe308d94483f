"""Requeue: auto-forward, and scheduled messages of topics that fall due."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.amqp.types import Symbol, ULong
from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, StoreFull
from oncebus.model.entities import EntityStatus, Rule, SqlAction, SqlFilter, TrueFilter
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DEAD, HOUR, SECOND, TRANSFER_DEAD, Scene, ids, message, play, scene


def test_messages_forwarded_into_a_detecting_queue_are_checked_there(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", detects=True)
        await scene.queue("source", forward_to="target")
        await scene.send("target", "a")
        await scene.send("source", "a", "b", message("c", session="s"), "b")
        await scene.rounds(2)
        assert await scene.taken("target") == ["a", "b", "c"]
        assert [each.message_id for each in await scene.duplicates("target")] == ["a", "b"]
        counts = await scene.counts("source")
        assert (counts.active, counts.transfer, counts.duplicates) == (0, 0, 0)

    play(tmp_path, plot)


def test_the_type_of_an_id_survives_forwarding_and_so_does_the_order(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", detects=True)
        await scene.queue("source", forward_to="target")
        given: list[amqp.Id] = [b"17", ULong(17), "17", b"18", *(f"m{n}" for n in range(20))]
        await scene.send("source", *(message(each) for each in given))
        await scene.rounds(2)
        found = [amqp.message_id(each.message.head) for each in await scene.receive("target")]
        assert found == [each for each in given if each != "17"]

    play(tmp_path, plot)


def test_a_chain_is_followed_for_four_hops(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("q6")
        for number in range(5, 0, -1):
            await scene.queue(f"q{number}", forward_to=f"q{number + 1}")
        await scene.send("q2", "fine")
        await scene.send("q1", "too far")
        await scene.rounds(6)
        assert await scene.taken("q6") == ["fine"]
        [stranded] = await scene.receive("q5", sub_queue=TRANSFER_DEAD)
        assert (stranded.message.message_id, stranded.message.reason) == ("too far", "MaxTransferHopCountExceeded")

    play(tmp_path, plot)


def test_a_circle_ends(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("a")
        await scene.queue("b", forward_to="a")
        changed = replace(scene.broker.catalogue.queue("a"), forward_to="b")
        await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        await scene.send("a", "m")
        await scene.rounds(8)
        counts = [await scene.counts(name) for name in ("a", "b")]
        assert sum(each.transfer_dead_letter for each in counts) == 1
        assert sum(each.active + each.transfer for each in counts) == 0

    play(tmp_path, plot)


def test_a_queue_may_forward_to_itself_until_the_hops_are_used_up(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("a", forward_to="a")
        await scene.send("a", "m", "n")
        await scene.rounds(6)
        assert await scene.taken("a", sub_queue=TRANSFER_DEAD) == ["m", "n"]
        counts = await scene.counts("a")
        assert (counts.active, counts.transfer, counts.transfer_dead_letter, counts.size) == (0, 0, 0, 0)

    play(tmp_path, plot)


@pytest.mark.parametrize("is_set_later", [False, True])
def test_a_queue_with_sessions_forwards_in_the_order_of_numbers(tmp_path: Path, is_set_later: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        queue = await scene.queue("source", requires_session=True, forward_to=None if is_set_later else "target")
        given = [message(f"m{number}", session=session) for number, session in enumerate(["b", "", "a", "b", ""])]
        await scene.send("source", *given)
        await scene.flow()
        if is_set_later:
            changed = replace(queue, forward_to="target")
            await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        await scene.rounds(2)
        found = await scene.receive("target")
        assert [(each.message.message_id, each.message.session) for each in found] == [
            ("m0", "b"), ("m1", ""), ("m2", "a"), ("m3", "b"), ("m4", "")
        ]  # fmt: skip
        changed = replace(queue, forward_to=None)
        await scene.broker.change(lambda catalogue, now: catalogue.update(changed, now))
        assert [name for name in await scene.broker.sessions(Address("source")) if name] == []

    play(tmp_path, plot)


def test_what_a_sender_wrote_in_header_and_annotations_is_forwarded(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("end")
        await scene.topic()
        await scene.subscription("s", forward_to="end", rules=[Rule("r", TrueFilter(), SqlAction("SET n = 1"))])
        await scene.queue("source", forward_dead_lettered_messages_to="t")
        bare = message("m")
        header, annotations = amqp.Header(priority=7), {Symbol("a"): "b"}
        await scene.send("source", bare._replace(head=amqp.annotate(bare.head, header, annotations, annotations)))
        [dead] = await scene.receive("source")
        await scene.settle("source", dead, Action.DEAD_LETTER, reason="why", properties={"changed": True})
        await scene.rounds(4)
        [found] = await scene.receive("end")
        kept = amqp.split(found.message.head)
        assert (kept.header.priority, kept.annotations, kept.delivery_annotations) == (7, annotations, annotations)
        own = amqp.application_properties(found.message.head)
        assert own == {"changed": True, "DeadLetterReason": "why", "n": 1, "RuleName": "r"}
        assert found.message.size == len(found.message.head) + len(found.body)

    play(tmp_path, plot)


def test_forwarding_to_a_topic_and_from_a_subscription(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("end")
        await scene.topic(detects=True)
        all_of_it = await scene.subscription("all")
        await scene.subscription("some", rules=[Rule("r", SqlFilter("sys.MessageId = 'b'"))], forward_to="end")
        await scene.queue("source", forward_to="t")
        await scene.send("source", "a", "b", "a")
        await scene.rounds(3)
        assert await scene.taken(all_of_it) == ["a", "b"]
        assert await scene.taken("end") == ["b"]

    play(tmp_path, plot)


def test_messages_that_the_target_refuses_go_to_the_transfer_dead_letters(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", requires_session=True)
        await scene.queue("source", forward_to="target")
        broken = message("broken", session="s")
        # Properties that cannot be decoded: the head is kept as it came.
        broken = type(broken)(b"\x00\x53\x73\xd0\x00", broken.body, "broken", "s")
        await scene.send("source", "a", broken, message("b", session="s"))
        await scene.rounds(2)
        found = await scene.receive("source", sub_queue=TRANSFER_DEAD)
        assert [(each.message.message_id, each.message.reason) for each in found] == [
            ("a", "InvalidOperation"),
            ("broken", "DecodeError"),
        ]
        assert (await scene.counts("target")).active == 1

    play(tmp_path, plot)


def test_messages_stay_while_their_target_does_not_exist_and_follow_when_it_does(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        await scene.queue("source", forward_to="target")
        await scene.delete_queue("target")
        await scene.send("source", "a")
        await scene.rounds()
        assert await scene.peeked("source") == ["a"]
        await scene.queue("target")
        await scene.rounds()
        assert await scene.taken("target") == ["a"]

    play(tmp_path, plot)


def test_dead_letters_are_forwarded_with_their_reason_and_a_new_time_to_live(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        await scene.queue(
            "source", forward_dead_lettered_messages_to="target", dead_lettering_on_message_expiration=True
        )
        await scene.send("source", "a", message("b", ttl=SECOND))
        [held, _] = await scene.receive("source")
        await scene.settle("source", held, Action.DEAD_LETTER, reason="bad", description="very")
        await scene.later(61, rounds=2)
        found = await scene.receive("target")
        assert ids(found) == ["a", "b"]
        assert [dict(amqp.application_properties(each.message.head)) for each in found] == [
            {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"},
            {
                "DeadLetterReason": "TTLExpiredException",
                "DeadLetterErrorDescription": "The message expired and was dead lettered.",
            },
        ]
        counts = await scene.counts("target")
        assert counts.size == sum(len(each.message.head) + len(each.body) for each in found)

    play(tmp_path, plot)


def test_a_target_with_a_shorter_time_to_live_expires_messages_earlier(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", default_message_time_to_live=10 * SECOND)
        await scene.queue("source", forward_to="target")
        start = scene.time.now
        await scene.send("source", message("a", ttl=HOUR), message("b", ttl=5 * SECOND), "c")
        await scene.rounds()
        found = await scene.receive("target")
        assert [each.message.expires for each in found] == [start + each * SECOND for each in (10, 5, 10)]

    play(tmp_path, plot)


def test_the_quota_of_the_target_applies_to_forwarded_messages(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target", max_size_in_megabytes=1024)
        await scene.queue("source", forward_to="target")
        held = scene.core.accounting.held

        def nearly_full(entity: object) -> int:
            return held(entity) + (1024 << 20) - 5_000  # type: ignore[arg-type]

        scene.pipeline.is_paused = True
        await scene.send("source", *(message(f"m{n}", bytes(2_000)) for n in range(4)))
        scene.pipeline.is_paused = False
        await scene.flow()
        scene.core.accounting.held = nearly_full  # type: ignore[method-assign]
        await scene.rounds()
        assert await scene.taken("target") == ["m0", "m1"]
        found = await scene.receive("source", sub_queue=TRANSFER_DEAD)
        assert {each.message.reason for each in found} == {"QuotaExceeded"}

    play(tmp_path, plot)


def test_scheduled_topic_messages_are_routed_by_the_rules_at_the_time_they_fall_due(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        early = await scene.subscription("early")
        await scene.send("t", message("a", scheduled=scene.time.now + HOUR, user={"x": 1}))
        await scene.flow()
        assert (await scene.counts("t")).scheduled == 1
        await scene.broker.change(lambda catalogue, now: catalogue.delete_rule("t", "early", "$Default"))
        late = await scene.subscription("late", rules=[Rule("x", SqlFilter("x = 1"))])
        await scene.later(3600, rounds=2)
        assert await scene.taken(early) == []
        [received] = await scene.receive(late)
        assert received.message.enqueued == scene.time.now
        assert received.message.enqueued_sequence == 2
        counts = await scene.counts("t")
        assert (counts.scheduled, counts.transfer, counts.duplicates) == (0, 0, 0)
        assert await scene.peeked(late, DEAD) == []

    play(tmp_path, plot)


@pytest.mark.parametrize("detects", [True, False])
@pytest.mark.parametrize("has_arrived", [True, False])
def test_messages_appended_before_a_crash_arrive_once(
    tmp_path: Path, detects: bool, has_arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue("target", detects=detects)
            await first.queue("source", forward_to="target")
            await first.topic(detects=detects)
            path = await first.subscription()
            await first.send("source", message("a"), message("b", bytes(100_000)))
            await first.send("t", message("c", scheduled=time.now + SECOND))
            await first.flow()
            time.advance(1)

            def die(*arguments: object) -> None:
                raise StoreFull("dead")

            # The rows are durable in the inbox, and the store does not know.
            monkeypatch.setattr(first.core.store._store.requeues, "end", die)
            first.pipeline.is_paused = not has_arrived
            await first.core.chores._end_locks()
            await first.core.chores._fall_due()
            with pytest.raises(StoreFull):
                await first.core.chores.requeue.step()
            if has_arrived:
                await first.flow()
        async with scene(tmp_path, time) as second:
            await second.rounds(3)
            found = await second.receive("target")
            assert ids(found) == ["a", "b"]
            assert len(found[1].body) > 100_000
            assert await second.taken(path) == ["c"]
            for name in ("target", "source", "t"):
                counts = await second.counts(name)
                assert (counts.duplicates, counts.transfer, counts.scheduled) == (0, 0, 0)

    asyncio.run(run())


def test_messages_forwarded_before_a_crash_are_not_refused_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is in the inbox, not ingested, and meanwhile the target is full. There must be no second copy."""

    async def run() -> None:
        time = FakeTime()
        async with scene(tmp_path, time) as first:
            await first.queue("target", detects=True)
            await first.queue("source", forward_to="target")
            await first.send("source", "a")
            await first.flow()

            def die(*arguments: object) -> None:
                raise StoreFull("dead")

            monkeypatch.setattr(first.core.store._store.requeues, "end", die)
            first.pipeline.is_paused = True
            with pytest.raises(StoreFull):
                await first.core.chores.requeue.step()
        async with scene(tmp_path, time) as second:
            second.pipeline.is_paused = True
            disabled = replace(second.broker.catalogue.queue("target"), status=EntityStatus.SEND_DISABLED)
            await second.broker.change(lambda catalogue, now: catalogue.update(disabled, now))
            assert not await second.core.chores.requeue.step()
            second.pipeline.is_paused = False
            await second.rounds(3)
            assert await second.taken("target") == ["a"]
            assert await second.taken("source", TRANSFER_DEAD) == []

    asyncio.run(run())


def test_messages_that_could_not_be_reported_to_the_store_are_not_appended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("target")
        await scene.queue("source", forward_to="target")
        await scene.send("source", "a")
        await scene.flow()
        scene.pipeline.is_paused = True
        with monkeypatch.context() as patch:

            def is_full(*arguments: object) -> None:
                raise StoreFull("no room")

            patch.setattr(scene.core.store._store.requeues, "end", is_full)
            for _ in range(3):
                with pytest.raises(StoreFull):
                    await scene.core.chores.requeue.step()
        appended = scene.core.entrance.acceptor.last_commit
        await scene.core.chores.requeue.step()
        assert scene.core.entrance.acceptor.last_commit == appended == 2
        scene.pipeline.is_paused = False
        await scene.rounds(2)
        assert await scene.taken("target") == ["a"]

    play(tmp_path, plot)
