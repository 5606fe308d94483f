"""A sink sends each row once, although its driver is lost in a batch and the cluster has fewer cores afterwards."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machines import running_machines, until, until_idle
from tests.reference import Verdict
from tests.spark.streams import expected
from tests.spark.trials import Trial

from .bus import DETECTS, Bus, text
from .followed import FILES

ROWS = 25
"""The rows of a file."""


@dataclass
class SinkTrial(Trial):
    bus: Bus = None  # type: ignore[assignment]
    queue: str = ""

    @property
    def command(self) -> list[str]:
        return ["-m", "tests.connector.followed", self.cluster.master, str(self.folder), self.queue, self.how]

    def sent(self) -> int:
        """Return how many messages the queue has."""
        return int(self.bus.http.metric("messages", entity=self.queue))

    def accepted(self) -> Counter[str]:
        """Return the bodies of the rows that the sink must send."""
        cut = [[m for file in self.history[at : at + FILES] for m in file] for at in range(0, len(self.history), FILES)]
        model = expected(cut) if self.how == "detected" else {m: Verdict(False) for batch in cut for m in batch}
        return Counter(str(message.sequence) for message, verdict in model.items() if not verdict.is_duplicate)

    def check(self) -> None:
        """Compare the messages in the queue with the rows."""
        right, found = self.accepted(), Counter[str]()
        with self.bus.client() as client, client.get_queue_receiver(self.queue) as receiver:
            while some := receiver.receive_messages(100, max_wait_time=5):
                for message in some:
                    found[text(message)] += 1
                    receiver.complete_message(message)
        wrong = {"twice": (found - right).total(), "lost": (right - found).total()}
        report = f"seed {self.seed}: {dict(self.faults)}; {right.total()} rows; {wrong}"
        print(f"\n{report}")
        assert found == right, self.report(report)


@pytest.mark.torture
@pytest.mark.parametrize("how", ["plain", "detected"])
@pytest.mark.parametrize("offset", range(2))
def test_a_sink_on_a_cluster_that_shrinks(bus: Bus, tmp_path: Path, seed: int, offset: int, how: str) -> None:
    seed += offset
    chance = random.Random(seed)
    print(f"\nseed {seed} begins: {how}")
    (tmp_path / "string").write_text(bus.string)
    (tmp_path / "cluster").mkdir()
    queue = bus.queue(f"shrinks-{how}-{seed}", **DETECTS)
    with running_machines(tmp_path / "cluster", cores=2) as cluster:
        run = SinkTrial(cluster, tmp_path, seed, how, bus=bus, queue=queue)
        run.add(FILES, ROWS)
        run.start()
        run.until_committed(1)
        before = run.sent()
        # One task of the next batch never sends. The others have sent when the driver is lost.
        run.order_stall(1, access=1, kind="connection")
        run.add(FILES, ROWS)
        [straggler] = run.until_stalled()
        until(lambda: run.sent() > before, "some tasks have sent")
        run.pause(straggler)
        run.kill_driver()
        stalled = straggler.stalled()
        run.start()
        run.add(FILES, ROWS)
        run.until_committed(2)
        if chance.random() < 0.5:
            run.go_on(straggler, "python")
            until_idle(stalled)
        run.lose(straggler)
        run.until_committed(3)
        run.kill_driver()
        run.check()
