"""A history: the requests of clients to the broker, the answers, and their times.

A recorder appends two JSON lines for each operation, one when it is invoked and one when it returns, so that a run that
dies leaves everything up to that moment. `read` pairs them again. The first line contains the seed, the requested
faults, and the wall time at which the history's clock was 0. That clock counts microseconds and is never set.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
"""It took effect; it was refused and had no effect; no answer came, so it may have taken effect, or still may."""

NEVER = 1 << 62
"""The return time of an operation that did not return."""


@dataclass(frozen=True)
class Operation:
    """One operation of one client. Its effect, if any, comes after `invoked` and before `returned`.

    `ended` is when the client went on. If the outcome is unknown, the broker may still be working on it, so `returned`
    is `NEVER`.
    """

    number: int
    client: str
    kind: str
    invoked: int
    returned: int
    ended: int
    outcome: str
    error: str
    args: Mapping[str, Any]
    result: Mapping[str, Any]

    def is_before(self, other: Operation) -> bool:
        """Return whether this operation returned before the other was invoked."""
        return self.returned < other.invoked


@dataclass(frozen=True)
class History:
    """All operations of one run, sorted by their invocation. `began` is the wall time of 0, in microseconds.

    The seed and `faults` determine the plan of the run.
    """

    seed: int
    faults: str
    began: int
    operations: tuple[Operation, ...]

    def of(self, *kinds: str) -> list[Operation]:
        """Return the operations of these kinds."""
        return [operation for operation in self.operations if operation.kind in kinds]


class Refused(Exception):
    """The broker answered that the operation had no effect."""


class Unanswered(Exception):
    """No answer came, or one that leaves the outcome unknown."""


@dataclass
class Answer:
    """The result of an operation, which the caller fills in while it runs."""

    result: dict[str, Any] = field(default_factory=dict)
    outcome: str = UNKNOWN
    error: str = ""

    @property
    def is_ok(self) -> bool:
        return self.outcome == OK


class Recorder:
    """Writes a history, line by line. Thread-safe."""

    def __init__(
        self,
        write: Callable[[str], object],
        seed: int,
        faults: str,
        *,
        passed: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Start a history. The seed and `faults`, as requested, are recorded for a replay.

        The clocks are in microseconds; `passed` is never set.
        """
        self._passed = passed
        self._began = passed()
        self._lock = threading.Lock()
        self._write_line = write
        self._next = 0
        self._write({"seed": seed, "faults": faults, "began": wall()})

    def now(self) -> int:
        """Return the microseconds since the history began, on a monotonic clock."""
        return self._passed() - self._began

    @contextmanager
    def operation(self, client: str, kind: str, **args: Any) -> Iterator[Answer]:
        """Record the operation that the block does. `Refused` and `Unanswered` are caught and become its outcome."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._write({"op": number, "client": client, "kind": kind, "at": self.now(), "args": args})
        answer = Answer()
        try:
            yield answer
            answer.outcome = OK
        except Refused as error:
            answer.outcome, answer.error = FAILED, str(error)
        except Unanswered as error:
            answer.error = str(error)
        finally:
            line: dict[str, Any] = {"op": number, "outcome": answer.outcome, "result": answer.result}
            if answer.error:
                line["error"] = answer.error[:200]
            with self._lock:
                self._write({**line, "at": self.now()})

    @contextmanager
    def together(self, client: str, operations: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[list[Answer]]:
        """Record operations that the block does together: all have its outcome."""
        opened = [self.operation(client, kind, **args) for kind, args in operations]
        answers = [each.__enter__() for each in opened]
        problem: Exception | None = None
        try:
            yield answers
        except (Refused, Unanswered, OSError) as error:
            problem = Unanswered(repr(error)) if isinstance(error, OSError) else error
        for each in reversed(opened):
            each.__exit__(None if problem is None else type(problem), problem, None)

    def _write(self, line: Mapping[str, Any]) -> None:
        self._write_line(json.dumps(line) + "\n")


def read(lines: Iterable[str]) -> History:
    """Parse the lines of a history. The outcome of an operation that did not return is unknown."""
    head: dict[str, Any] = {}
    invoked: dict[int, dict[str, Any]] = {}
    results: dict[int, dict[str, Any]] = {}
    for line in lines:
        found = json.loads(line)
        if "seed" in found:
            head = found
        elif "kind" in found:
            invoked[found["op"]] = found
        else:
            results[found["op"]] = found
    operations = []
    for number, begun in invoked.items():
        ended = results.get(number, {"at": NEVER, "outcome": UNKNOWN, "result": {}})
        returned = ended["at"] if ended["outcome"] != UNKNOWN else NEVER
        operations.append(
            Operation(
                number,
                begun["client"],
                begun["kind"],
                begun["at"],
                returned,
                ended["at"],
                ended["outcome"],
                ended.get("error", ""),
                begun["args"],
                ended["result"],
            )
        )
    return History(
        head["seed"],
        head["faults"],
        head["began"],
        tuple(sorted(operations, key=lambda each: (each.invoked, each.number))),
    )
