"""`make history`: record and check one history; or, with files, check recorded ones again.

HISTORY_SEED is the seed, by default a new one. HISTORY_FAULTS is the number of faults, or their kinds, separated by
commas.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .checker import check
from .history import read
from .report import complaint, figures, summary
from .run import Ran, run


def _made() -> Ran:
    seed = int(os.environ.get("HISTORY_SEED") or random.SystemRandom().randrange(10**6))
    asked = os.environ.get("HISTORY_FAULTS") or "40"
    print(f"HISTORY_SEED={seed} HISTORY_FAULTS='{asked}'", flush=True)
    return run(Path(tempfile.mkdtemp(prefix="history-")), seed, asked)


def _read(path: Path) -> Ran:
    with path.open() as lines:
        history = read(lines)
    hit = Counter(each.args["fault"] for each in history.of("fault") if each.result.get("hit"))
    return Ran(history, path, "", hit)


def main() -> None:
    is_right = True
    for ran in [_read(Path(name)) for name in sys.argv[1:]] or [_made()]:
        violations = check(ran.history)
        print(summary(ran.history.seed, figures(ran, violations), ran.hit))
        if violations:
            print(complaint(ran, violations))
            is_right = False
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
