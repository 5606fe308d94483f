"""Which writer may follow which: a task that outlives its driver never takes the ledger from its successor."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.ledger import Generation, Ledger, LedgerInUse, Listing, Owner, Writer
from oncebus.ledger.storage import Stamp
from tests.histories import SECOND, START, rows_of
from tests.ledger.owners import HERE, dead_owner
from tests.reference import Message

DAY = 86_400 * SECOND


def start(ledger: Ledger, token: str, owner: Owner | None = None, query: str = "query") -> Writer:
    """Return the writer of a driver that starts now, on a machine of its own if no owner is given."""
    owner = owner or Owner(f"machine {token}", 1, "0")
    return Writer(token, query, owner, *ledger.predecessor(lambda _: False, owner))


def judge(ledger: Ledger, writer: Writer, batch: int, keys: range) -> list[bool]:
    generation, listing = ledger.enter(writer, batch)
    rows = rows_of([Message(f"k{key}", START + batch * SECOND, key, DAY) for key in keys])
    found = ledger.judge(rows, generation, batch, part=0, parts=1, clock=2**62, listing=listing)
    return [bool(each) for each in found.is_duplicate]


@pytest.mark.parametrize("lives", ["elsewhere", "dead"])
def test_a_task_that_outlives_its_driver_takes_nothing_from_the_next_driver(tmp_path: Path, lives: str) -> None:
    """The driver d2 is lost before one of its tasks has claimed a generation. The task enters when d3 has committed."""
    owner = dead_owner() if lives == "dead" else None
    ledger = Ledger.open(tmp_path)
    judge(ledger, start(ledger, "d1", owner), 0, range(3))
    d2 = start(ledger, "d2", owner)
    d3 = start(ledger, "d3", owner and Owner(owner.place, owner.pid, "restarted"))
    for batch in (1, 2, 3):
        assert judge(ledger, d3, batch, range(1 + 2 * batch, 3 + 2 * batch)) == [False, False]
    with pytest.raises(LedgerInUse, match="generation was 1 then, and now it is generation 2 of query query"):
        judge(ledger, d2, 1, range(3, 5))
    d4 = start(ledger, "d4")
    assert judge(ledger, d4, 4, range(5, 9)) == [True] * 4


@pytest.mark.parametrize("query", ["stream", "foreach"])
def test_a_batch_does_not_take_the_ledger_from_a_stopped_query_unless_it_is_told_to(tmp_path: Path, query: str) -> None:
    ledger = Ledger.open(tmp_path)
    if query == "stream":
        judge(ledger, start(ledger, "aa", HERE), 0, range(3))
    else:
        opened = ledger.batch(query="query", batch=0)
        opened.begin(lambda _: False, HERE)
        ledger.judge(rows_of([Message("k0", START, 0, DAY)]), opened.generation, 0, part=0, parts=1, clock=2**62)
        opened.commit()
    before = ledger.newest()
    message = (
        r"belongs to query .*query, .* the batch joins beside it: batch\(checkpoint=…\).* batch\(take_over=True\), or"
    )
    with pytest.raises(LedgerInUse, match=message), ledger.batch() as plain:
        plain.begin(lambda _: False, HERE)
    assert ledger.newest() == before
    with ledger.batch(take_over=True) as taking:
        taking.begin(lambda _: False, HERE)
        rows = rows_of([Message("k0", START, 0, DAY)])
        ledger.judge(rows, taking.generation, 0, part=0, parts=1, clock=2**62)
    assert ledger.newest() == taking.generation
    with ledger.batch() as next_one:
        next_one.begin(lambda _: False, HERE)


def test_a_batch_that_takes_over_is_outside_a_query(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Give take_over alone"):
        Ledger.open(tmp_path).batch(query="query", batch=0, take_over=True)


def test_the_generation_of_a_query_stays_however_many_batches_join_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncebus.ledger.listing.KEPT_GENERATIONS", 1)
    query = Generation(1, "aa", "query", 0, 0, 0, HERE)
    asides = [Generation(number, f"{number:02x}", "batch", 0, 1, 0, HERE, is_aside=True) for number in range(2, 6)]
    stamps = {generation.file_name: Stamp(1, 1) for generation in (query, *asides)}
    listing = Listing.of(stamps, [query, *asides])
    assert listing.superseded_files() == []
