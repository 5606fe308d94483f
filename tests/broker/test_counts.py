"""The counters after a history with every kind of message."""

from __future__ import annotations

from pathlib import Path

from oncebus.broker.sending import Incoming
from oncebus.engine.store import NAMESPACE, Action
from oncebus.model.entities import Rule, SqlFilter
from tests.broker.scenes import HOUR, SECOND, Scene, message, play


def test_every_message_counts_as_new_or_as_a_duplicate(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("q", detects=True)
        await scene.queue("source", forward_to="q")
        await scene.topic("t", detects=True)
        all_of_it = await scene.subscription("all")
        await scene.subscription("more")
        some = await scene.subscription("some", rules=[Rule("x", SqlFilter("x = 1"))])
        await scene.topic("unheard")
        due = scene.time.now + 10 * SECOND

        answered = dict.fromkeys(("q", "source", "t", "unheard"), 0)
        for path, given in (
            ("q", ["a", "a", message(None), message("b", bytes(100_000)), message("c", scheduled=due), "c"]),
            ("source", ["a", "d", "d"]),
            ("t", [message("a", user={"x": 1}), "a", message("late", scheduled=due, user={"x": 1}), "late"]),
            ("t", [Incoming(b"\x00\x53\x73\xd0\x00", b"", "unreadable")]),
            ("unheard", ["a", "b"]),
        ):
            answered[path] += len(await scene.send(path, *given))
        await scene.later(10, rounds=4)

        counts = {path: await scene.counts(path) for path in (*answered, all_of_it, some)}
        # A message that is forwarded to a queue counts there as if it had been sent to it.
        answered["q"] += answered["source"]
        for path, number in answered.items():
            assert counts[path].incoming == counts[path].new + counts[path].duplicates == number, path
        assert {path: counts[path].duplicates for path in answered} == {"q": 4, "source": 0, "t": 2, "unheard": 0}
        new = {path: count.new for path, count in counts.items()}
        assert new == {"q": 5, "source": 3, "t": 3, "unheard": 2, all_of_it: 2, some: 2}
        [namespace] = await scene.broker.counts_now([NAMESPACE])
        assert (namespace.incoming, namespace.new, namespace.duplicates) == (sum(answered.values()), 13, 6)
        assert (counts["unheard"].unrouted, counts["t"].quarantined, counts["t"].scheduled) == (2, 1, 0)

    play(tmp_path, plot)


def test_every_dead_letter_is_counted_once(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(max_delivery_count=1, dead_lettering_on_message_expiration=True)
        await scene.send("q", "by hand", "too often", message("too old", ttl=HOUR))
        first, second, _ = await scene.receive()
        await scene.settle("q", first, Action.DEAD_LETTER)
        await scene.settle("q", second, Action.ABANDON)
        await scene.later(2 * HOUR / SECOND, rounds=2)
        counts = await scene.counts()
        assert (counts.new, counts.outgoing, counts.dead_letter, counts.dead_lettered) == (3, 3, 3, 3)

    play(tmp_path, plot)
