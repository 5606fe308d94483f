"""The memory and the open descriptors of a process, as Linux counts them."""

from __future__ import annotations

import re
from pathlib import Path

MEGABYTE = 1 << 20


def resident(pid: int) -> int:
    """Return the bytes that a process has in memory now."""
    return _kilobytes(pid, "VmRSS") * 1024


def peak(pid: int) -> int:
    """Return the most bytes that a process had in memory since `forget_peak`."""
    return _kilobytes(pid, "VmHWM") * 1024


def forget_peak(pid: int) -> None:
    """Reset the peak to the current memory of a process."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def descriptors(pid: int) -> int:
    """Return the number of open descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class MemoryWatch:
    """Measures how far the memory of a process rises above its level at the start of the watch.

    Linux records the peak, so a rise between two measurements is not missed.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        forget_peak(pid)
        self.before = resident(pid)

    @property
    def rise(self) -> int:
        """Return the bytes between the level at the start and the peak since."""
        return max(0, peak(self._pid) - self.before)

    def stays_below(self, limit: int, what: str) -> None:
        """Fail if the memory has risen by more than `limit` bytes, and print the rise."""
        rise = self.rise
        print(f"{what}: {rise / MEGABYTE:.1f} MB more memory, {limit / MEGABYTE:.0f} MB allowed")
        assert rise <= limit, f"{what} took {rise / MEGABYTE:.1f} MB, more than {limit / MEGABYTE:.0f} MB"


def _kilobytes(pid: int, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, f"process {pid} has no {name}"
    return int(found[1])
