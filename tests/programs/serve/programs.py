"""Tiny programs for the supervisor's tests, and a process that runs a supervisor over them.

`python -m serve.programs FOLDER GRACE NAME…` keeps the named programs running. Each program writes to FOLDER/NAME.log:
its process id at every start, and `asked` when it is asked to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oncebus.programs.serve.supervisor import BackOff, Program, Supervisor

ROOT = Path(__file__).parents[3]
LIMIT = 60.0

_BEGIN = """
import os, signal, subprocess, sys, time
log = open({log!r}, "a")
def note(text):
    log.write(text + "\\n"); log.flush()
def begin():
    # Called after the signal handler is set, so that a test can send the signal at once.
    note(f"started {{os.getpid()}}")
def rest():
    # Not signal.pause: a signal that comes just before it would wait for the next one.
    while True: time.sleep(0.02)
def end(*_):
    note("asked"); sys.exit(0)
signal.signal(signal.SIGTERM, end)
"""

PROGRAMS = {
    # Runs until it is asked to end.
    "steady": "begin()\nrest()",
    # Ignores that it is asked to end.
    "stubborn": "signal.signal(signal.SIGTERM, lambda *_: note('asked'))\nbegin()\nrest()",
    # Ends when asked, but only once a certain file exists.
    "patient": "go = log.name + '.go'\ndef slowly(*_):\n    note('asked')\n"
    "    while not os.path.exists(go): time.sleep(0.02)\n    note('done')\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, slowly)\nbegin()\nrest()",
    "failing": "begin()\nsys.exit(3)",
    # Starts another process and dies without it.
    "careless": "begin()\nchild = subprocess.Popen(['sleep', '600'])\nnote(f'child {child.pid}')\nrest()",
    # Ends when its parent does, as the gateway and the pipeline do.
    "loyal": "begin()\nparent = os.getppid()\nnote('watching')\n"
    "while os.getppid() == parent: time.sleep(0.02)\nnote('orphan')",
}


def program(
    folder: Path, name: str, *, gives_up: Callable[[int], bool] = lambda code: False, grace: float = 5.0
) -> Program:
    log = folder / f"{name}.log"
    code = _BEGIN.format(log=str(log)) + PROGRAMS[name]
    return Program(
        name, [sys.executable, "-c", code], gives_up=gives_up, back_off=lambda: BackOff(0.02, 0.1), grace=grace
    )


def lines(folder: Path, name: str) -> list[str]:
    log = folder / f"{name}.log"
    return log.read_text().splitlines() if log.exists() else []


def pids(folder: Path, name: str, what: str = "started") -> list[int]:
    return [int(line.split()[1]) for line in lines(folder, name) if line.startswith(what)]


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # ProcessLookupError: the process ended after its file was opened.
        return False


def until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """Wait until a condition holds. Fails with `what` after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit} s for: {what}"
        time.sleep(0.01)


def start(folder: Path, *names: str, grace: float = 5.0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.programs.serve.programs", str(folder), str(grace), *names]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the whole process group, as a terminal does at Ctrl-C."""
    os.killpg(process.pid, number)


def main() -> None:
    folder, grace, *names = sys.argv[1:]
    supervised = [program(Path(folder), name, grace=float(grace)) for name in names]

    async def run() -> int:
        return await Supervisor(supervised).run()

    sys.exit(asyncio.run(run()))


if __name__ == "__main__":
    main()
