"""Lives lives of a broker or a ledger, one after another: `make simulate`, or `python -m tests.simulation`.

A life that breaks a rule is shortened and printed, with its seed: the same seed, steps and crashes give it again.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections import Counter

from tests.simulation.ledgers import live_ledger
from tests.simulation.life import Lived, live, shorten

_AROUND = 12
_NO_FAULTS = ("lives", "verdicts compared", "forgets", "asides", "resumed")


def main() -> int:
    """Return 1 if a life broke a rule."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets must be the same in each run of a seed.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    given = _arguments()
    gc.collect()
    # What is loaded now stays, so the collections after each crash need not look at it.
    gc.freeze()
    began, deadline = time.process_time(), time.monotonic() + given.minutes * 60
    counts, lives = Counter[str](), 0
    for seed in range(given.seed, given.seed + given.lives):
        found = (_live_ledger if given.world == "ledger" else _live_broker)(seed, given)
        if found is None:
            return 1
        lives, counts = lives + 1, counts + found
        if time.monotonic() > deadline:
            break
    took = time.process_time() - began
    steps, crashes = counts.pop("steps"), counts.pop("crashes", 0)
    faults = sum(counts[each] for each in counts if each not in _NO_FAULTS)
    print(f"seeds {given.seed} to {given.seed + lives - 1}: {lives} lives, {steps} steps, no violation")
    print(f"{crashes} crashes, {faults} faults in all: {dict(sorted(counts.items()))}")
    print(f"{took:.0f} s of CPU: {lives / took:.1f} lives and {faults / took:.1f} faults a second", end="")
    print(f", {crashes / took * 3600:,.0f} crashes an hour" if crashes else "")
    return 0


def _live_broker(seed: int, given: argparse.Namespace) -> Counter[str] | None:
    """Live one life of a broker. Return what happened; None if a rule is broken, after showing it."""
    lived = live(seed, steps=given.steps, crashes=given.crashes)
    if lived.violations:
        _show(shorten(lived) if given.shorten else lived)
        return None
    return lived.faults + Counter(steps=lived.steps, crashes=lived.crashes)


def _live_ledger(seed: int, given: argparse.Namespace) -> Counter[str] | None:
    """Live one life of a ledger. It is compared after each step, so it ends with the first one that breaks a rule."""
    figures = Counter[str]()
    try:
        live_ledger(seed, given.steps, figures)
    except Exception as error:
        steps = figures["steps"] + 1
        print(
            f"seed {seed}, {steps} steps breaks a rule:\n  {type(error).__name__}: {error}\nbefore it: {dict(figures)}"
        )
        traceback.print_exception(error)
        print(f"again: python -m tests.simulation --world ledger --seed {seed} --lives 1 --steps {steps}")
        return None
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--world", choices=("broker", "ledger"), default="broker", help="what lives")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first life")
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no life after this time")
    parser.add_argument("--steps", type=int, help="the steps of all clients in a life (400), or of a ledger (20)")
    parser.add_argument("--crashes", type=int, default=12, help="the crashes in a life at most")
    parser.add_argument("--no-shorten", dest="shorten", action="store_false", help="print the life as it was")
    given = parser.parse_args()
    given.steps = given.steps or (20 if given.world == "ledger" else 400)
    return given


def _show(lived: Lived) -> None:
    print(f"seed {lived.seed}, {lived.steps} steps, {lived.crashes} crashes breaks a rule:")
    for violation in lived.violations[:10]:
        print(f"  {violation}")
    named = {word.strip(",:'[]()") for violation in lived.violations for word in violation.what.split()}
    uids = {uid for uid in named if f'"{uid}"' in "".join(lived.lines)}
    around = [line for line in lived.lines if any(f'"{uid}"' in line for uid in uids)] or lived.lines[-_AROUND:]
    print("the history around it:")
    for line in around[:40]:
        print("  " + line.rstrip()[:300])
    words = f"--seed {lived.seed} --lives 1 --steps {lived.steps} --crashes {lived.crashes}"
    print(f"again: python -m tests.simulation {words}")


sys.exit(main())
