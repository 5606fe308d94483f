from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.programs.serve.supervisor import INTERRUPTED, BackOff, Program, Supervisor

from .programs import LIMIT, is_alive, lines, pids, program, signal_group, start, until

Starter = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starter]:
    """Return a function that starts a supervisor. Processes that a failing test leaves behind are killed."""
    running: list[subprocess.Popen[bytes]] = []

    def run(*names: str, grace: float = LIMIT) -> subprocess.Popen[bytes]:
        running.append(start(tmp_path, *names, grace=grace))
        return running[-1]

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    for log in tmp_path.glob("*.log"):
        for pid in pids(tmp_path, log.stem) + pids(tmp_path, log.stem, "child"):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_waits_double_from_half_a_second_to_ten() -> None:
    back_off = BackOff()
    assert [back_off.after(1.0) for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_steady_run_makes_the_next_wait_short_again() -> None:
    back_off = BackOff(steady=30.0)
    for _ in range(5):
        back_off.after(1.0)
    assert back_off.after(29.9) == 10.0
    assert back_off.after(30.0) == 0.5
    assert back_off.after(1.0) == 1.0


@given(st.lists(st.floats(0, 100)))
def test_a_wait_is_never_shorter_than_the_least_nor_longer_than_the_most(runs: list[float]) -> None:
    back_off = BackOff(0.5, 10.0, 30.0)
    assert all(0.5 <= back_off.after(ran) <= 10.0 for ran in runs)


def test_waits_are_measured_with_the_clock_that_is_given(tmp_path: Path) -> None:
    """By that clock, each run lasts a minute, so every wait is the shortest."""
    waits: list[float] = []

    class Watched(BackOff):
        def after(self, ran: float) -> float:
            waits.append(super().after(ran))
            return 0.0

    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 60.0
        return now

    async def run() -> int:
        failing = program(tmp_path, "failing", gives_up=lambda code: len(waits) == 3)
        watched = Program(failing.name, failing.command, gives_up=failing.gives_up, back_off=Watched)
        return await Supervisor([watched], clock=clock).run()

    assert asyncio.run(run()) == 1
    assert waits == [0.5, 0.5, 0.5]


def test_a_killed_program_is_restarted_and_the_other_is_left_alone(tmp_path: Path, started: Starter) -> None:
    supervisor = started("steady", "loyal")
    for times in range(1, 4):
        until(lambda times=times: len(pids(tmp_path, "steady")) == times, f"start {times}")  # type: ignore[misc]
        os.kill(pids(tmp_path, "steady")[-1], signal.SIGKILL)
    until(lambda: len(pids(tmp_path, "steady")) == 4, "start 4")
    until(lambda: pids(tmp_path, "loyal"), "the other")
    assert len(pids(tmp_path, "loyal")) == 1
    assert supervisor.poll() is None


def test_a_program_that_keeps_failing_is_restarted_every_time(tmp_path: Path, started: Starter) -> None:
    supervisor = started("failing", "steady")
    until(lambda: len(pids(tmp_path, "failing")) >= 5 and pids(tmp_path, "steady"), "five starts")
    assert supervisor.poll() is None
    assert len(pids(tmp_path, "steady")) == 1


def test_a_program_that_gives_up_ends_the_others_and_is_an_error(tmp_path: Path) -> None:
    async def run() -> int:
        failing = program(tmp_path, "failing", gives_up=lambda code: code == 3 and bool(lines(tmp_path, "steady")))
        return await Supervisor([program(tmp_path, "steady"), failing]).run()

    assert asyncio.run(run()) == 1
    assert not any(map(is_alive, pids(tmp_path, "steady")))


def test_a_program_that_cannot_even_be_started_is_an_error(tmp_path: Path) -> None:
    async def run() -> int:
        return await Supervisor([program(tmp_path, "steady"), Program("none", ["/nonexistent/program"])]).run()

    with pytest.raises(FileNotFoundError):
        asyncio.run(run())
    assert not any(map(is_alive, pids(tmp_path, "steady")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_at_a_stop_it_asks_all_programs_to_end_and_waits_for_them(
    tmp_path: Path, started: Starter, number: signal.Signals
) -> None:
    supervisor = started("steady", "careless")
    until(lambda: pids(tmp_path, "steady") and pids(tmp_path, "careless", "child"), "both")
    signal_group(supervisor, number)
    assert supervisor.wait(2 * LIMIT) == 0
    assert lines(tmp_path, "steady")[-1] == "asked"
    left = [*pids(tmp_path, "steady"), *pids(tmp_path, "careless"), *pids(tmp_path, "careless", "child")]
    until(lambda: not any(map(is_alive, left)), "all gone")


def test_under_nohup_it_continues_when_the_terminal_is_closed(tmp_path: Path, started: Starter) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervisor = started("steady")
    finally:
        signal.signal(signal.SIGHUP, before)
    until(lambda: pids(tmp_path, "steady"), "start")
    signal_group(supervisor, signal.SIGHUP)
    os.kill(pids(tmp_path, "steady")[0], signal.SIGKILL)
    until(lambda: len(pids(tmp_path, "steady")) == 2, "start again")
    supervisor.terminate()
    assert supervisor.wait(2 * LIMIT) == 0


def test_a_program_that_does_not_end_is_killed_after_its_grace(tmp_path: Path, started: Starter) -> None:
    supervisor = started("stubborn", grace=5.0)
    until(lambda: pids(tmp_path, "stubborn"), "start")
    supervisor.terminate()
    assert supervisor.wait(2 * LIMIT) == 0
    assert lines(tmp_path, "stubborn")[-1] == "asked"
    until(lambda: not any(map(is_alive, pids(tmp_path, "stubborn"))), "all gone")


def test_a_program_may_be_given_more_time_than_the_others(tmp_path: Path) -> None:
    async def run() -> int:
        programs = [program(tmp_path, "patient", grace=600.0), program(tmp_path, "stubborn", grace=0.2)]
        supervisor = Supervisor(programs)
        running = asyncio.create_task(supervisor.run())
        await asyncio.to_thread(until, lambda: pids(tmp_path, "patient") and pids(tmp_path, "stubborn"), "both")
        supervisor.stop()
        await asyncio.to_thread(until, lambda: list(supervisor.processes()) == ["patient"], "the other is killed")
        (tmp_path / "patient.log.go").touch()
        return await running

    assert asyncio.run(run()) == 0
    assert lines(tmp_path, "patient")[1:] == ["asked", "done"]
    assert not any(map(is_alive, pids(tmp_path, "stubborn")))


def test_a_second_interrupt_ends_everything_at_once(tmp_path: Path, started: Starter) -> None:
    supervisor = started("stubborn", grace=600.0)
    until(lambda: pids(tmp_path, "stubborn"), "start")
    signal_group(supervisor, signal.SIGINT)
    until(lambda: "asked" in lines(tmp_path, "stubborn"), "asked")
    signal_group(supervisor, signal.SIGINT)
    assert supervisor.wait(2 * LIMIT) == INTERRUPTED
    until(lambda: not any(map(is_alive, pids(tmp_path, "stubborn"))), "all gone")


def test_the_children_of_a_killed_program_are_killed_too(tmp_path: Path, started: Starter) -> None:
    started("careless")
    until(lambda: pids(tmp_path, "careless", "child"), "start")
    child = pids(tmp_path, "careless", "child")[0]
    assert is_alive(child)
    os.kill(pids(tmp_path, "careless")[0], signal.SIGKILL)
    until(lambda: len(pids(tmp_path, "careless", "child")) == 2, "second start")
    until(lambda: not is_alive(child), "gone")


def test_when_the_supervisor_is_killed_programs_that_watch_it_end(tmp_path: Path, started: Starter) -> None:
    supervisor = started("loyal")
    until(lambda: "watching" in lines(tmp_path, "loyal"), "start")
    supervisor.kill()
    supervisor.wait()
    until(lambda: lines(tmp_path, "loyal")[-1] == "orphan", "orphan")
    until(lambda: not any(map(is_alive, pids(tmp_path, "loyal"))), "gone")
