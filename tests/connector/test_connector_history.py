"""Random histories of a stream without Spark: deaths, lost locks and broken connections between any two steps of it.

Whatever happens, every message is in exactly one committed batch, and a repeated batch has the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.in_process import FakeTime
from tests.protocols.servicebus.bus import Bus, running_bus

from .test_connector_intake import LOCK, Offset, Scene

STEPS = 60


@pytest.fixture
def amqp(tmp_path: Path) -> Iterator[Bus]:
    """Run a broker for one history: its clock runs away from that of the machine, and tokens expire after an hour."""
    with running_bus(tmp_path / "amqp", FakeTime()) as bus:
        yield bus


class History:
    """A stream that is played step by step. `logged` is the end of a batch that Spark has logged and not committed."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self.scene, self.chance = scene, chance
        self.sent = 0
        self.logged: Offset | None = None
        self.seen: list[str] | None = None
        self.rows: list[str] = []
        self.steps: Counter[str] = Counter()

    def put(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            session = {"session_id": self.chance.choice("abc")} if self.scene.options.sessions else {}
            self.scene.put(str(self.sent), **session)
            self.sent += 1

    def plan(self) -> None:
        """Plan a batch, if there is none and if messages come. It may not get into Spark's log."""
        if self.logged is not None:
            return
        end = self.scene.asked(self.chance.choice((1, 3, 1000)))
        if end != self.scene.start and self.chance.random() < 0.8:
            self.logged, self.seen = end, None

    def run(self) -> None:
        """Run the tasks of the batch, perhaps again."""
        if self.logged is None:
            return
        found = self.scene.rows(self.logged)
        assert self.seen in (None, found)
        self.seen = found

    def commit(self) -> None:
        self.run()
        if self.logged is None:
            return
        assert self.seen is not None
        self.rows += self.seen
        if self.scene.start["batch"]:
            self.scene.intake.commit(self.scene.start)
        self.scene.start, self.logged = self.logged, None

    def die(self) -> None:
        self.scene.die(locks_expire=self.chance.random() < 0.5)

    def lose_locks(self) -> None:
        self.scene.bus.advance(LOCK)

    def break_links(self) -> None:
        receivers = self.scene.intake._receivers
        receivers._start(receivers._close_all()).result()

    def play(self) -> None:
        steps = {self.put: 6, self.plan: 8, self.run: 2, self.commit: 8, self.die: 2, self.lose_locks: 1}
        steps[self.break_links] = 1
        for _ in range(STEPS):
            (step,) = self.chance.choices(list(steps), list(steps.values()))
            self.steps[step.__name__] += 1
            step()
        self.commit()
        # Messages whose connection broke come again when their locks have expired.
        self.lose_locks()
        while len(self.rows) < self.sent:
            self.rows += self.scene.batch()
        self.scene.bus.until(self._is_over, "all messages are completed")

    def _is_over(self) -> bool:
        sessions = "abc" if self.scene.options.sessions else [None]
        left = sum(self.scene.left_in(session) for session in sessions)
        assert self.scene.asked(1000) == self.scene.start
        return left == 0


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"receivers": 3, "max_bytes": 1},
        {"sessions": "true", "receivers": 2},
    ],
)
def test_every_message_once(amqp: Bus, tmp_path: Path, seed: int, options: dict[str, object]) -> None:
    queue = amqp.queue(requires_session="sessions" in options, max_delivery_count=2000)
    scene = Scene(amqp, tmp_path, queue, **options)
    history = History(scene, random.Random(seed))
    try:
        history.play()
    finally:
        scene.intake.close()
        print(f"\nseed {seed}: {history.sent} messages, {dict(history.steps)}")
    assert sorted(history.rows, key=int) == [str(number) for number in range(history.sent)]
