"""`python -m history FILE…` checks histories again; `python -m history --run SEED FAULTS` makes one and checks it.

Run it in the folder `tests`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from . import faults
from .checker import Violation, check
from .history import read
from .report import complaint, figures, summary
from .run import Ran, run


def main() -> None:
    if sys.argv[1] == "--run":
        seed, count = int(sys.argv[2]), sys.argv[3:]
        planned = faults.plan(seed, int(count[0])) if count[0].isdigit() else faults.plan(seed, len(count), count)
        print(f"seed {seed}, {len(planned)} faults", flush=True)
        made = [run(Path(tempfile.mkdtemp(prefix="history-")), seed, planned)]
    else:
        made = []
        for name in sys.argv[1:]:
            with open(name) as lines:
                history = read(lines)
            hit = Counter(each.args["fault"] for each in history.of("fault") if each.result.get("hit"))
            made.append(Ran(history, Path(name), "", hit))
    found: list[Violation] = []
    for ran in made:
        violations = check(ran.history)
        print(summary(ran.history.seed, figures(ran, violations), ran.hit))
        if violations:
            print(complaint(ran, violations))
        found += violations
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
