"""The supervisor: starts programs, restarts them when they end, and leaves no process behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

LEAST_SECONDS = 0.5
MOST_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""A program that ran for this long counts as healthy, and the next wait is short again."""

GRACE_SECONDS = 4.0
"""How long a program may take to end before it is killed.

It is short, because a person waits for it, and because gateway and pipeline lose nothing when they are killed.
"""

INTERRUPTED = 130


class BackOff:
    """Decides how long to wait before a restart: twice as long each time, until the program has run steadily."""

    def __init__(
        self, least: float = LEAST_SECONDS, most: float = MOST_SECONDS, steady: float = STEADY_SECONDS
    ) -> None:
        self._least, self._most, self._steady = least, most, steady
        self._next = least

    def after(self, ran: float) -> float:
        """Return how many seconds to wait after a run of `ran` seconds."""
        if ran >= self._steady:
            self._next = self._least
        wait = self._next
        self._next = min(self._most, 2 * wait)
        return wait


@dataclass(frozen=True)
class Program:
    """A program to keep running.

    When it ends, `gives_up` gets its exit code and returns whether a restart is useless.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    descriptors: tuple[int, ...] = ()
    gives_up: Callable[[int], bool] = lambda code: False  # noqa: ARG005
    back_off: Callable[[], BackOff] = field(default=BackOff)
    grace: float = GRACE_SECONDS


class Supervisor:
    """Runs programs until SIGTERM, SIGINT or SIGHUP arrives, or until one of them gives up.

    Each program leads its own process group, so Ctrl-C in the terminal reaches only the supervisor. When a program
    ends, the rest of its group is killed. A second SIGINT kills everything at once.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._programs = programs
        self._clock = clock
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._code = 0

    def processes(self) -> dict[str, int]:
        """Return the process ids of the running programs, by name."""
        return {name: process.pid for name, process in self._running.items()}

    def stop(self, code: int = 0) -> None:
        """End all programs. `run` then returns the code."""
        if not self._stopping.is_set():
            self._code = code
            self._stopping.set()

    async def run(self) -> int:
        """Run the programs and return the exit code: 0 after a stop, 1 if one gave up, 130 after a second SIGINT."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGTERM, signal.SIGINT]
        # SIGHUP is ignored under nohup: then the end of the terminal must not stop us.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        kept = [asyncio.create_task(self._keep(program)) for program in self._programs]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            # If one of the supervisor's own tasks fails, stop everything instead of leaving programs unwatched.
            await asyncio.wait([stopping, *kept], return_when=asyncio.FIRST_COMPLETED)
            self.stop(1)
            await self._end_all(kept)
        finally:
            stopping.cancel()
            self._kill_all()
            for number in numbers:
                loop.remove_signal_handler(number)
        await asyncio.gather(*kept)
        return self._code

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopping.is_set() and number is signal.SIGINT:
            self._code = INTERRUPTED
            self._hurry.set()
            return
        log.info("Stopping", extra={"fields": {"signal": number.name}})
        self.stop()

    async def _keep(self, program: Program) -> None:
        back_off = program.back_off()
        while not self._stopping.is_set():
            started = self._clock()
            code = await self._run_once(program)
            if self._stopping.is_set():
                return
            facts = {"program": program.name, "ended": _ending(code)}
            if program.gives_up(code):
                # It has said why. That stays the last line.
                log.debug("Stopping, because the %s cannot run", program.name, extra={"fields": facts})
                self.stop(1)
                return
            wait = back_off.after(self._clock() - started)
            log.error("The %s ended; restarting it", program.name, extra={"fields": {**facts, "in_seconds": wait}})
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()

    async def _run_once(self, program: Program) -> int:
        process = await asyncio.create_subprocess_exec(
            *program.command,
            env=program.environment,
            pass_fds=program.descriptors,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running[program.name] = process
        try:
            log.debug("Started a program", extra={"fields": {"program": program.name, "pid": process.pid}})
            if self._stopping.is_set():
                _terminate(process)
            return await process.wait()
        finally:
            _kill_group(process.pid)
            del self._running[program.name]

    async def _end_all(self, kept: Sequence[asyncio.Task[None]]) -> None:
        for process in self._running.values():
            _terminate(process)
        hurry = asyncio.create_task(self._hurry.wait())
        ended = asyncio.create_task(asyncio.wait(kept))
        waited = 0.0
        for program in sorted(self._programs, key=lambda program: program.grace):
            await asyncio.wait([hurry, ended], timeout=program.grace - waited, return_when=asyncio.FIRST_COMPLETED)
            waited = program.grace
            if (late := self._running.get(program.name)) is not None:
                why = "because of a second Ctrl-C" if self._hurry.is_set() else "because it did not end in time"
                facts = {"program": program.name, "pid": late.pid}
                log.warning(f"Killing the {program.name}, {why}; no message is lost", extra={"fields": facts})
                _kill_group(late.pid)
        hurry.cancel()
        await ended

    def _kill_all(self) -> None:
        for process in self._running.values():
            _kill_group(process.pid)


def _terminate(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()


def _kill_group(leader: int) -> None:
    """Kill the processes that are left of a program's group; usually there are none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
