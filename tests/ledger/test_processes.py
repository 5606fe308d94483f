"""Writers in processes of their own: they race, and they end."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncebus.ledger import Owner
from oncebus.ledger.storage import storage_at
from tests.ledger.owners import HERE

RACING = Path(__file__).with_name("racing.py")


def test_an_owner_is_alive_until_its_process_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = Owner(HERE.place, process.pid, started)
        assert owner.is_alive()
        process.communicate(b"\n")
    assert owner.is_alive() is False


def race(location: str, rounds: int) -> None:
    """Let two processes claim the same names at the same moments."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(RACING), location, content],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for content in ("one", "two")
        ]
        for racer in racers:
            stack.callback(racer.kill)
        answers = [racer.stdout for racer in racers]
        assert [answer and answer.readline() for answer in answers] == ["ready\n"] * 2
        storage = storage_at(location)
        won = [0, 0]
        for number in range(rounds):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"claim-{number} {time.time() + 0.005}\n")
            outcomes = [answer and answer.readline() for answer in answers]
            assert sorted(map(str, outcomes)) == ["False\n", "True\n"]
            winner = outcomes.index("True\n")
            won[winner] += 1
            assert bytes(storage.read(f"claim-{number}")) == (b"one", b"two")[winner]
        assert min(won) > 0, f"the two never raced: {won}"


def test_exactly_one_of_two_claims_at_the_same_moment_wins(location: str) -> None:
    race(location, 50)


@pytest.mark.torture
def test_exactly_one_of_two_claims_wins_every_time(location: str) -> None:
    race(location, 2000)
