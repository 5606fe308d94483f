"""A query on a cluster whose machines are paused and lost judges each row as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machines import Machine, running_machines, until_idle
from tests.spark.trials import Trial

LAST_ACCESS = 10
"""A task of batch 2 makes at least this many accesses to its ledger, in a stream or in foreachBatch."""


@contextmanager
def trial(folder: Path, seed: int, *, how: str = "stream") -> Iterator[Trial]:
    """Run a trial in the block, and then check its output."""
    print(f"\nseed {seed} begins")
    (folder / "cluster").mkdir()
    with running_machines(folder / "cluster") as cluster:
        run = Trial(cluster, folder, seed, how)
        yield run
        run.kill_driver()
        run.check()


@pytest.mark.torture
@pytest.mark.parametrize("offset", range(3))
def test_a_task_that_outlives_its_driver(tmp_path: Path, seed: int, offset: int) -> None:
    """A driver is lost before its tasks begin, and one of them begins when its successor has committed batches."""
    with trial(tmp_path, seed + offset) as run:
        chance = run.chance
        if chance.random() < 0.5:
            run.add(2, rows=40)
            run.start()
            run.until_all_committed()
            run.kill_driver()

        access = chance.choice([1, 1, 1, 2, 3])
        run.order_stall(len(run.history), access, tasks=2)
        run.add(1, rows=40)
        run.start()
        straggler, other = chance.sample(run.until_stalled(2), 2)
        run.pause(straggler)
        run.kill_driver()
        run.lose(other)
        run.cluster.add()

        run.start()
        run.add(chance.randint(2, 4), rows=40)
        run.until_all_committed()
        is_alone = chance.random() < 0.5
        if is_alone:
            run.kill_driver()
        go_on_late(run, straggler)
        if is_alone:
            run.start()
        run.add(3, rows=40)
        run.until_all_committed()


@pytest.mark.torture
@pytest.mark.parametrize("how", ["stream", "foreach"])
@pytest.mark.parametrize("offset", range(2))
def test_an_attempt_that_stalls_and_goes_on(tmp_path: Path, seed: int, offset: int, how: str) -> None:
    """Spark gives an attempt up. It goes on when the query has deleted the runs that the attempt would need."""
    with trial(tmp_path, seed + offset, how=how) as run:
        chance = run.chance
        run.add(2, rows=60, step=10)
        run.start()
        run.until_all_committed()
        # The workers of the next driver have not read the runs of these batches yet.
        run.kill_driver()
        run.order_stall(2, chance.randint(1, LAST_ACCESS))
        run.add(1, rows=60, step=10)
        run.start()
        [straggler] = run.until_stalled()
        run.pause(straggler)
        # The keys of batches 0 and 1 are forgotten from here on, those of batch 2 would not be.
        run.add(1, rows=6, step=55)
        run.add(chance.randint(9, 12), rows=6, step=0)
        run.until_all_committed()
        go_on_late(run, straggler)
        run.add(3, rows=60, step=0)
        run.until_all_committed()


def go_on_late(run: Trial, straggler: Machine) -> None:
    """Let the stopped task go on. Its JVM, which would end it, goes on later or never."""
    stalled = straggler.stalled()
    run.go_on(straggler, "python")
    until_idle(stalled)
    if run.chance.random() < 0.5:
        run.go_on(straggler)
    else:
        run.lose(straggler)
