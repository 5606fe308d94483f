"""Threads that use one ledger, and so share its open runs, do not disturb each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncebus.ledger import Ledger, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Stamp
from tests.histories import SECOND, START, rows_of
from tests.ledger.owners import HERE
from tests.ledger.test_ledger_properties import eager
from tests.reference import Message

DAY = 86_400 * SECOND


class Held(dict[str, Stamp]):
    """A listing that calls `meanwhile` in another thread when it is first compared with what is open."""

    meanwhile: Callable[[], object] | None = None

    def __contains__(self, name: object) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            thread.join()
        return super().__contains__(name)


class HeldStorage(LocalStorage):
    meanwhile: Callable[[], object] | None = None

    def names(self) -> dict[str, Stamp]:
        found = Held(super().names())
        found.meanwhile = self.meanwhile
        return found


def write(ledger: Ledger, batch: int, writer: Writer | None = None, window: int = DAY) -> None:
    generation = ledger.join(writer or Writer("aa", "query", HERE), batch)
    message = Message(f"k{batch}", START + batch * SECOND, batch, window)
    ledger.judge(rows_of([message]), generation, batch, part=0, parts=1, clock=2**62)
    ledger.tidy(generation, batch, part=0, parts=1)


def read(ledger: Ledger) -> list[bool]:
    """Open all runs, as `contains` and every batch do."""
    later = rows_of([Message(f"k{batch}", START + 9 * SECOND, 9, DAY) for batch in range(4)])
    generation = ledger.join(Writer("aa", "query", HERE), 9)
    return [bool(each) for each in ledger.decide(later, generation, 9, part=0, parts=1, clock=2**62)[0].is_duplicate]


@pytest.mark.parametrize("before", [2, 3])
def test_a_run_is_opened_or_deleted_while_another_thread_lists(tmp_path: Path, before: int) -> None:
    ledger = Ledger.open(tmp_path)
    for batch in range(before):
        write(ledger, batch)
    read(ledger)
    for batch in range(before, 4):
        write(ledger, batch)
    # Another process deletes a run that is open here.
    [gone] = tmp_path.glob("run-1.0-*")
    gone.unlink()
    storage = HeldStorage(str(tmp_path))
    storage.meanwhile = lambda: read(Ledger.open(tmp_path))
    assert read(Ledger(storage)) == [False, True, True, True]


@pytest.mark.torture
def test_many_threads_read_while_others_write_and_merge(tmp_path: Path) -> None:
    """Keys with a window of a day stay, and those with a short one go, with their runs."""
    ledger, stop = Ledger.open(tmp_path), threading.Event()
    ledger.describe_or_check(["key string"], has_secret=True)

    def look() -> int:
        times = 0
        while not stop.is_set():
            assert ledger.summary().runs >= 0
            ledger.find("k0")
            times += 1
        return times

    with eager(2, 2), ThreadPoolExecutor(4) as pool:
        looking = [pool.submit(look) for _ in range(4)]
        try:
            for batch in range(150):
                write(ledger, batch, window=DAY if batch % 20 == 0 else 2 * SECOND)
        finally:
            stop.set()
        assert min(each.result() for each in looking) > 1
