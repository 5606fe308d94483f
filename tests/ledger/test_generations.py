from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from histories import SECOND, START, rows_of
from oncebus.ledger import CheckpointTooOld, Generation, Ledger, LedgerInUse, LedgerMismatch, Owner, Writer
from oncebus.ledger.generations import EVERY_BATCH, limits
from reference import Message

HERE = Owner.this_process()
ELSEWHERE = Owner("another machine", 1, "0")


def dead_owner() -> Owner:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        owner = Owner(HERE.place, process.pid, stat)
        assert owner.is_alive()
        process.communicate(b"\n")
    assert owner.is_alive() is False
    return owner


def write(ledger: Ledger, writer: Writer, batch: int) -> Generation:
    generation = ledger.join(writer, batch)
    ledger.judge(rows_of([Message(f"k{batch}", START, batch, SECOND)]), generation, batch, parts=1, clock=2**62)
    return generation


def test_limits_follow_restarts_and_successors() -> None:
    def generation(number: int, query: str, keeps_below: int) -> Generation:
        return Generation(number, str(number), query, 0, keeps_below, None)

    history = [
        generation(1, "a", 0),
        generation(2, "a", 5),
        generation(3, "a", 3),
        generation(4, "b", 9),
        generation(5, "b", 2),
    ]
    assert limits(history) == {1: 3, 2: 3, 3: 9, 4: 2, 5: EVERY_BATCH}


def test_a_generation_survives_its_file() -> None:
    for owner in (HERE, None):
        generation = Generation(3, "t", "q", 1, 2, owner)
        assert Generation.from_json(generation.to_json()) == generation


def test_a_living_writer_is_not_joined(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    alive = Owner(
        HERE.place, os.getppid(), Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    )
    write(ledger, Writer("a", "one", alive), 0)
    with pytest.raises(LedgerInUse, match=rf"is being written by query one of process {os.getppid()}\. Stop it first"):
        ledger.join(Writer("b", "two", HERE), 0)
    with pytest.raises(LedgerInUse, match="is being written by query one"):
        ledger.join(Writer("b", "one", HERE), 0)


def test_a_dead_writer_is_succeeded_at_once(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", dead_owner()), 0)
    assert ledger.join(Writer("b", "two", HERE), 0).number == 2


def test_a_writer_elsewhere_is_succeeded_when_it_has_been_silent(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", ELSEWHERE), 0)
    with pytest.raises(LedgerInUse, match="s ago by query one from another place"):
        ledger.join(Writer("b", "two", HERE), 0)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    assert ledger.join(Writer("b", "two", HERE), 0).number == 2


def test_a_writer_that_was_succeeded_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("a", "one", dead_owner()), 0)
    write(ledger, Writer("b", "two", HERE), 0)
    with pytest.raises(LedgerInUse, match="has been taken over from query one by query two"):
        ledger.join(Writer("a", "one", HERE), 1)
    with pytest.raises(CheckpointTooOld, match="Start the query with a new checkpoint"):
        ledger.join(Writer("c", "one", HERE, follows=2), 1)


def test_two_writers_that_come_at_the_same_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees the other's claim steps back."""
    ledger = Ledger.open(tmp_path)
    rival = Generation(1, "b0b0", "rival", 0, EVERY_BATCH, HERE)
    claim = Ledger._claim

    def claim_later(self: Ledger, generation: Generation) -> None:
        (tmp_path / rival.file_name).write_bytes(rival.to_json())
        claim(self, generation)

    monkeypatch.setattr(Ledger, "_claim", claim_later)
    with pytest.raises(LedgerInUse, match="was claimed by another writer at the same moment"):
        ledger.join(Writer("aa", "one", HERE), 0)
    assert [name.name for name in tmp_path.iterdir()] == [rival.file_name]


def test_a_rival_that_died_before_it_stepped_back_is_overlooked(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    write(ledger, Writer("b", "one", HERE), 0)
    for token in ("a", "c"):
        rival = Generation(1, token, "rival", 0, EVERY_BATCH, dead_owner())
        (tmp_path / rival.file_name).write_bytes(rival.to_json())
        assert not ledger.is_committed(rival)
    assert write(ledger, Writer("b", "one", HERE), 1).token == "b"
    assert ledger.summary().ids == 2


def test_only_the_last_writer_can_be_confirmed(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    with pytest.raises(LedgerMismatch, match="was last written by query None, not by query x"):
        ledger.confirm("x", 1)
