"""A clock that is wrong by the number of seconds in a file.

`python wrong_clock.py FILE python -m MODULE ARGUMENT…` runs a module in a process with that clock. Monotonic clocks are
not affected.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

_true_time_ns = time.time_ns


class WrongClock:
    """A replacement for `time.time` and `time.time_ns`. It is right until `set_wrong` is called."""

    def __init__(self, file: Path) -> None:
        self._file = file
        if not file.exists():
            self.set_wrong(0)
        # -P, because the modules in this folder must not hide others of the same name.
        self.within = [sys.executable, "-P", __file__, str(file)]

    def set_wrong(self, seconds: int) -> None:
        """Set the error of the clock, for all processes at once."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        os.replace(new, self._file)

    def time_ns(self) -> int:
        return _true_time_ns() + int(self._file.read_text()) * 10**9

    def time(self) -> float:
        return self.time_ns() / 1e9


def main() -> None:
    file, _, _, module, *arguments = sys.argv[1:]
    clock = WrongClock(Path(file))
    time.time_ns, time.time = clock.time_ns, clock.time
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
