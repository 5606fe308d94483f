"""The latency of a quiet entity next to noisy ones, in simulated time.

The pipeline processes everything that waits as one batch of at most 16 MB. A batch takes a fixed time, plus a time that
grows with the batch. Noisy entities send as soon as they may. Half a minute is simulated in less than a second.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from oncebus.broker.shares import DELAY, Shares, work_of
from oncebus.values.durations import SECOND
from tests.broker.in_process import FakeTime

TICK, LENGTH = SECOND // 200, 30 * SECOND
ACCEPTED = 60_000_000
"""The work per second that the gateway accepts."""
NOISE = work_of(100, 100 * 300)
WHISPER = work_of(1, 300)
QUIET = 1
MOST_IN_BATCH = 16 << 20


class Machine(NamedTuple):
    """A batch takes `fixed` seconds plus one for each `speed` of work; in the second half, `slower` times as long."""

    fixed: float
    speed: float
    slower: float = 1.0

    def seconds(self, work: int, *, is_late: bool) -> float:
        return (self.fixed + work / self.speed) * (self.slower if is_late else 1)


class Outcome(NamedTuple):
    """The quiet entity's latencies in seconds, sorted, and the fraction of the pipeline's speed that was used."""

    waits: list[float]
    used: float

    def longest(self, part: float) -> float:
        return self.waits[int(len(self.waits) * part)]


class Simulation:
    """Simulate half a minute of a broker."""

    def __init__(self, machine: Machine, noisy: int, *, is_fair: bool) -> None:
        self._machine, self._noisy, self._is_fair = machine, range(2, 2 + noisy), is_fair
        self._time = FakeTime()
        self._began = self._time.now
        self._shares = Shares(lambda: self._time.now, lambda _: False)
        self._works: list[int] = []
        self._taken = 0
        self._batch: tuple[int, int] | None = None
        self._sent: dict[int, int] = {}
        self._waits: list[float] = []
        self._done = 0

    def run(self) -> Outcome:
        # The pulse that goes through every new pipeline.
        self._accept(0, work_of(1, 0))
        while (passed := self._time.now - self._began) < LENGTH:
            self._end_batch()
            self._make_noise()
            if passed % (SECOND // 10) == 0:
                assert self._offer(QUIET, WHISPER), "a quiet entity never waits"
                self._sent[len(self._works)] = self._time.now
            self._begin_batch(is_late=passed > LENGTH // 2)
            self._time.now += TICK
        return Outcome(sorted(self._waits), self._done * SECOND / LENGTH / self._machine.speed)

    def _accept(self, entity: int, work: int) -> None:
        self._shares.add(entity, work)
        self._works.append(work)
        self._shares.commit(len(self._works), [(entity, work)], self._time.now)

    def _offer(self, entity: int, work: int) -> bool:
        if self._is_fair and not self._shares.has_room(entity, work):
            return False
        self._accept(entity, work)
        return True

    def _make_noise(self) -> None:
        if self._taken:
            left = ACCEPTED * TICK // SECOND
            while left > 0 and (accepted := sum(self._offer(entity, NOISE) for entity in self._noisy)):
                left -= NOISE * accepted

    def _begin_batch(self, *, is_late: bool) -> None:
        if self._batch is not None or self._taken == len(self._works):
            return
        last, work = self._taken, 0
        while last < len(self._works) and work < MOST_IN_BATCH:
            work += self._works[last]
            last += 1
        seconds = self._machine.seconds(work, is_late=is_late)
        self._batch = last, self._time.now + round(seconds * SECOND)

    def _end_batch(self) -> None:
        if self._batch is None or self._batch[1] > self._time.now:
            return
        last, self._batch = self._batch[0], None
        self._done += sum(self._works[self._taken : last])
        self._shares.take(last)
        for commit in [commit for commit in self._sent if commit <= last]:
            self._waits.append((self._time.now - self._sent.pop(commit)) / SECOND)
        self._taken = last


QUICK, USUAL, SLOW = Machine(0.03, 40e6), Machine(0.06, 20e6), Machine(0.12, 10e6)
OVERLOADED = Machine(0.6, 5e6)


@pytest.mark.parametrize("noisy", [1, 4, 20])
@pytest.mark.parametrize("machine", [QUICK, USUAL, SLOW])
def test_a_quiet_entity_waits_about_as_long_as_others_may_make_it(machine: Machine, noisy: int) -> None:
    found = Simulation(machine, noisy, is_fair=True).run()
    assert found.longest(0.5) < DELAY / SECOND + 2 * machine.fixed
    assert found.longest(0.99) < 1.0
    # With small batches the pipeline spends more of its time on their fixed cost, although two run at once.
    assert found.used > 0.9 - 2 * machine.fixed * SECOND / DELAY


def test_a_machine_that_is_too_slow_for_that_is_still_used() -> None:
    found = Simulation(OVERLOADED, 1, is_fair=True).run()
    assert found.used > 0.4
    assert found.longest(0.99) < 8 * OVERLOADED.fixed


def test_a_pipeline_that_becomes_slower_is_noticed_within_moments() -> None:
    found = Simulation(USUAL._replace(slower=4.0), 1, is_fair=True).run()
    assert found.longest(0.8) < 1.0
    # Work accepted before it became slower takes longer by the same factor.
    assert found.longest(1 - 1e-9) < 8 * DELAY / SECOND


def test_without_shares_a_quiet_entity_waits_for_everything() -> None:
    assert Simulation(USUAL, 1, is_fair=False).run().longest(0.5) > 5


if __name__ == "__main__":
    for machine in (QUICK, USUAL, SLOW, OVERLOADED, USUAL._replace(slower=4.0)):
        for noisy in (1, 4, 20):
            found = Simulation(machine, noisy, is_fair=True).run()
            waits = ", ".join(f"{part:.0%}: {found.longest(part):.2f} s" for part in (0.5, 0.9, 0.99))
            print(f"{machine}, {noisy} noisy: {waits}; {found.used:.0%} of the pipeline used")
