"""Tells whether a process holds a lock on a file, without taking the lock: a process that starts may be taking it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_FLOCK = re.compile(r"^\d+: FLOCK .*:(\d+) \d+ \S+$", re.MULTILINE)
_LOCKS = Path("/proc/locks")


def is_locked(path: str | os.PathLike[str], locks: Path = _LOCKS) -> bool:
    """Return whether a process of this machine, or of this container, has locked the file with `flock`.

    False too if the file does not exist, or the system does not tell.
    """
    try:
        inode, held = os.stat(path).st_ino, locks.read_text()
    except OSError:
        return False
    return str(inode) in _FLOCK.findall(held)
