"""The processes that write to a ledger, and whether they are alive."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """The process of a writer. Other processes with the same `place` can check whether it is alive."""

    place: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        """Return the calling process."""
        return cls(_place(), os.getpid(), _start_time_of(os.getpid()) or "")

    @classmethod
    def remote_session(cls, session: str) -> Owner:
        """Return the owner for a session of Spark Connect. No process can check whether such an owner is alive."""
        return cls("spark connect", 0, session)

    def is_alive(self) -> bool | None:
        """Return whether the process is alive; None if this process cannot tell."""
        if self.place != _place():
            return None
        return _start_time_of(self.pid) == self.started

    def to_json(self) -> bytes:
        """Return the object as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Owner:
        """Parse the result of `to_json`. Raises `ValueError` or `TypeError` for anything else."""
        return cls(**json.loads(text))


def _place() -> str:
    """Return a name for the scope in which process ids are unique: this boot of this machine or container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _start_time_of(pid: int) -> str | None:
    """Return the start time of a process, in the units of the system; None if there is no such process."""
    try:
        # Skip the name in parentheses, which may contain spaces: the start time is the 20th field after it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self").exists():
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""
