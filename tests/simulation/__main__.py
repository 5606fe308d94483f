"""Lives lives of a broker, one after another: `make simulate`, or `python -m tests.simulation`.

A life that breaks a rule is shortened and printed, with its seed: the same seed, steps and crashes give it again.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter

from tests.simulation.life import Lived, live, shorten

_AROUND = 12


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
    faults, steps, lives, crashes = Counter[str](), 0, 0, 0
    for seed in range(given.seed, given.seed + given.lives):
        lived = live(seed, steps=given.steps, crashes=given.crashes)
        lives, crashes, steps, faults = lives + 1, crashes + lived.crashes, steps + lived.steps, faults + lived.faults
        if lived.violations:
            _show(shorten(lived) if given.shorten else lived)
            return 1
        if time.monotonic() > deadline:
            break
    took = time.process_time() - began
    print(
        f"seeds {given.seed} to {given.seed + lives - 1}: {lives} lives, {steps} steps, {crashes} crashes, no violation"
    )
    print(f"{took:.0f} s of CPU, {crashes / took * 3600:,.0f} crashes an hour; faults: {dict(sorted(faults.items()))}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first life")
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no life after this time")
    parser.add_argument("--steps", type=int, default=400, help="the steps of all clients in a life")
    parser.add_argument("--crashes", type=int, default=12, help="the crashes in a life at most")
    parser.add_argument("--no-shorten", dest="shorten", action="store_false", help="print the life as it was")
    return parser.parse_args()


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
