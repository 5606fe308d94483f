from __future__ import annotations

import random

from oncebus.ledger.names import LANES, Position, RunName, parse_run_names, without_covered

TOKENS = ("a1", "b2")


def some_runs(chance: random.Random) -> list[RunName]:
    """Return runs of a few parts, many of which cover others."""
    found = []
    for _ in range(chance.randrange(40)):
        begin, length = chance.randrange(6), chance.choice([0, 0, 1, 2, 5])
        generations = sorted(chance.choices([1, 2], k=2))
        first, last = Position(generations[0], begin), Position(generations[1], begin + length)
        parts = chance.choice([1, 2, LANES])
        size = chance.randrange(4)
        origin = chance.choice([None, None, size + 1, 4])
        found.append(
            RunName(first, last, chance.randrange(min(parts, 3)), parts, size, 7, chance.choice(TOKENS), None, origin)
        )
    return parse_run_names({str(run) for run in found})


def test_a_run_is_left_out_exactly_if_another_covers_it() -> None:
    chance = random.Random(1)
    left_out = 0
    for _ in range(2000):
        runs = some_runs(chance)
        expected = [run for run in runs if not any(other.covers(run) for other in runs)]
        assert without_covered(runs) == expected
        left_out += len(runs) - len(expected)
    assert left_out > 2000


def test_runs_come_in_the_order_of_their_positions() -> None:
    names = ["run-1.10-1.10-0.1-5-7-aa.run", "run-1.9-1.9-0.1-5-7-aa.run", "ledger.json", "run-1.9-1.10-0.1-9-7-aa.run"]
    assert [str(run) for run in parse_run_names(names)] == [names[1], names[3], names[0]]


def test_a_rewritten_run_covers_the_run_it_was_made_of_and_no_other_of_its_batch() -> None:
    here = Position(1, 0)
    runs = [RunName(here, here, 0, 1, 3, horizon, "a1") for horizon in (100, 200)]
    rewritten = runs[0].rewritten(2)
    assert without_covered([*runs, rewritten]) == [runs[1], rewritten]
