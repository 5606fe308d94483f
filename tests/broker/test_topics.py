"""Rules of subscriptions while messages flow, through the broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.broker.sending import Incoming
from oncebus.model.entities import CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter
from oncebus.model.filters.errors import BadRule
from tests.broker.scenes import DEAD, Scene, ids, message, play


def test_a_rule_applies_to_messages_sent_after_the_change_returned_and_not_before(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription(rules=[Rule("none", FalseFilter())])
        # Sent before, and still in the pipeline when the rule is created.
        scene.pipeline.is_paused = True
        await scene.send("t", "before")
        await scene.broker.change(lambda catalogue, now: catalogue.create_rule("t", "s", Rule("all"), now))
        await scene.send("t", "after")
        await scene.broker.change(lambda catalogue, now: catalogue.delete_rule("t", "s", "all"))
        await scene.send("t", "later")
        scene.pipeline.is_paused = False
        assert await scene.taken(path) == ["after"]

    play(tmp_path, plot)


def test_each_rule_with_an_action_makes_a_copy_of_its_own(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        rules = [
            Rule("plain", SqlFilter("n > 0")),
            Rule("also-plain", SqlFilter("n < 9")),
            Rule("change", SqlFilter("n = 1"), SqlAction("SET n = n + 10; SET sys.Label = 'new'")),
            Rule("other", SqlFilter("n = 1"), SqlAction("REMOVE n; SET sys.MessageId = 'other'")),
            Rule("no", SqlFilter("n = 2"), SqlAction("SET n = 0")),
        ]
        path = await scene.subscription(rules=rules)
        await scene.send("t", message("a", user={"n": 1}, subject="old"))
        found = await scene.receive(path)
        assert ids(found) == ["a", "a", "other"]
        assert [
            (amqp.properties(each.message.head).subject, dict(amqp.application_properties(each.message.head)))
            for each in found
        ] == [
            ("old", {"n": 1}),
            ("new", {"n": 11, "RuleName": "change"}),
            ("old", {"RuleName": "other"}),
        ]
        assert [each.message.enqueued_sequence for each in found] == [1, 1, 1]
        assert [len(each.message.head) + len(each.body) for each in found] == [each.message.size for each in found]
        assert (await scene.counts("t")).new == 1

    play(tmp_path, plot)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_filter_that_fails_makes_a_dead_letter_if_the_subscription_says_so(tmp_path: Path, keeps: bool) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription(
            rules=[Rule("bad", SqlFilter("1 / n > 0"))], dead_lettering_on_filter_evaluation_exceptions=keeps
        )
        other = await scene.subscription("other")
        await scene.send("t", message("fails", user={"n": 0}), message("fine", user={"n": 1}))
        dead = await scene.receive(path, sub_queue=DEAD)
        assert [(each.message.message_id, each.message.reason) for each in dead] == (
            [("fails", "FilterEvaluationException")] if keeps else []
        )
        assert await scene.taken(path) == ["fine"]
        assert await scene.taken(other) == ["fails", "fine"]
        counts = await scene.counts(path)
        assert counts.dead_lettered == keeps

    play(tmp_path, plot)


def test_correlation_filters_compare_system_and_user_properties(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription(
            rules=[Rule("c", CorrelationFilter(correlation_id="c1", label="red", properties=(("n", 1),)))]
        )
        await scene.send(
            "t",
            message("a", correlation_id="c1", subject="red", user={"n": 1}),
            message("b", correlation_id="c1", subject="red", user={"n": 2}),
            message("c", correlation_id="c1", user={"n": 1}),
            message("d", correlation_id="c2", subject="red", user={"n": 1}),
            message("e", correlation_id="c1", subject="Red", user={"n": 1}),
        )
        assert await scene.taken(path) == ["a"]

    play(tmp_path, plot)


def test_a_rule_that_cannot_be_parsed_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        await scene.subscription()
        before = scene.broker.catalogue
        with pytest.raises(BadRule):
            await scene.broker.change(
                lambda catalogue, now: catalogue.create_rule("t", "s", Rule("bad", SqlFilter("reflect('x') = ")), now)
            )
        assert scene.broker.catalogue is before

    play(tmp_path, plot)


def test_a_subscription_with_sessions_dead_letters_messages_without_one(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        path = await scene.subscription(requires_session=True)
        await scene.send("t", message("a", session="s"), "b", message("c", session=""))
        dead = await scene.receive(path, sub_queue=DEAD)
        assert [(each.message.message_id, each.message.reason) for each in dead] == [("b", "Session ID is null.")]
        assert (await scene.counts(path)).active == 2

    play(tmp_path, plot)


def test_a_row_that_cannot_be_processed_is_quarantined_and_the_others_continue(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic(detects=True)
        path = await scene.subscription(rules=[Rule("r", SqlFilter("x = 1"))])
        plain = message("broken", b"body")
        broken = Incoming(b"\x00\x53\x74\xd1\xff\xff", plain.body, "broken")
        await scene.send("t", message("a", user={"x": 1}), broken, message("b", user={"x": 1}))
        assert await scene.taken(path) == ["a", "b"]
        [row] = await scene.broker.quarantine.page("t")
        assert (row.message_id, row.sequence, row.reason, row.head) == ("broken", 2, "DecodeError", broken.head)
        assert row.body == broken.body
        assert row.description
        assert [each.number for each in await scene.broker.quarantine.page()] == [row.number]
        assert (await scene.counts("t")).quarantined == 1
        # It counts towards the quota of its topic until somebody discards or releases it.
        await scene.core.accounting.refresh_sizes(scene.core.store)
        held = scene.broker.held(scene.broker.catalogue.topic("t"))
        assert held == row.size == (await scene.counts("t")).size > 0
        await scene.send("t", message("c", user={"x": 1}))
        assert await scene.taken(path) == ["c"]

    play(tmp_path, plot)


def test_versions_of_the_catalogue_that_nobody_needs_are_deleted(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        folder = tmp_path / "catalogue"
        for number in range(5):
            await scene.queue(f"q{number}")
            await scene.send("q", "a")
            await scene.flow()
        assert len(list(folder.iterdir())) == 7
        for _ in range(12):
            await scene.send("q", "a")
            await scene.flow()
        async with asyncio.timeout(30):
            while len(list(folder.iterdir())) > 1:
                await asyncio.sleep(0.005)

    play(tmp_path, plot)


@pytest.mark.parametrize(("subscriptions", "commits"), [(8, 2), (16, 5)])
def test_messages_with_many_copies_go_into_smaller_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subscriptions: int, commits: int
) -> None:
    """The pipeline copies a whole commit at once: the copies have to fit into memory."""

    async def plot(scene: Scene) -> None:
        await scene.topic("t")
        for number in range(subscriptions):
            await scene.subscription(f"s{number}")
        size = message("m", bytes(1000)).size
        monkeypatch.setattr("oncebus.broker.acceptor.MOST_BYTES", 4 * size)
        free = threading.Event()
        blocked = scene.core.entrance.acceptor._thread.run(free.wait)
        before = scene.core.entrance.acceptor.last_commit
        waiting = [asyncio.create_task(scene.send("t", message(f"{n}", bytes(1000)))) for n in range(8)]
        await asyncio.sleep(0.01)
        free.set()
        await blocked
        await asyncio.gather(*waiting)
        assert scene.core.entrance.acceptor.last_commit - before <= commits
        assert scene.core.entrance.acceptor.last_commit - before >= commits - 1
        assert len(await scene.taken("t/subscriptions/s1")) == 8

    play(tmp_path, plot)


def test_a_version_that_rows_are_still_waiting_under_is_kept(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        free = threading.Event()
        blocked = scene.core.entrance.acceptor._thread.run(free.wait)
        # Accepted under this version, and made durable only after the next one is in use.
        waiting = [asyncio.create_task(scene.send("q", f"m{n}")) for n in range(3)]
        await asyncio.sleep(0)
        await scene.queue("other")
        needed_until, _ = scene.core.catalogues._published[-1]
        free.set()
        await blocked
        await asyncio.gather(*waiting)
        assert scene.core.entrance.acceptor.last_commit <= needed_until

    play(tmp_path, plot)


def test_a_change_applies_to_all_messages_sent_after_it_returned_and_to_none_accepted_before(
    tmp_path: Path,
) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        paths = [await scene.subscription(f"s{number}", rules=[]) for number in range(6)]
        asked = returned = 0
        # How many changes had returned when a send began, and how many had begun when it returned.
        began: dict[str, int] = {}
        ended: dict[str, int] = {}
        is_over = False

        async def send(sender: int) -> None:
            number = 0
            while not is_over:
                name, number = f"{sender}-{number}", number + 1
                began[name] = returned
                await scene.send("t", message(name, bytes(100_000 if number % 7 == 0 else 10)))
                ended[name] = asked

        senders = [asyncio.create_task(send(number)) for number in range(8)]
        for number in range(len(paths)):
            sent = len(ended)
            while len(ended) < sent + 20:
                await asyncio.sleep(0)
            asked += 1
            await scene.broker.change(
                lambda catalogue, now, name=f"s{number}": catalogue.create_rule("t", name, Rule(), now)  # type: ignore[misc]
            )
            returned += 1
        sent = len(ended)
        while len(ended) < sent + 20:
            await asyncio.sleep(0)
        is_over = True
        await asyncio.gather(*senders)
        for number, path in enumerate(paths):
            found: set[str] = set()
            while some := await scene.taken(path):
                found.update(some)
            assert {name for name, changes in began.items() if changes > number} <= found
            assert not {name for name, changes in ended.items() if changes <= number} & found

    play(tmp_path, plot)
