"""A history: the requests of clients to the broker, the answers, and their times.

A recorder appends two JSON lines for each operation, one when it is invoked and one when it returns, so that a run that
dies leaves everything up to that moment. `read` pairs them again. The first line contains the seed, the requested
faults, and the wall time at which the history's clock was 0. That clock counts microseconds and is never set.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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
    """Writes a history. Thread-safe."""

    def __init__(self, path: Path, seed: int, faults: str) -> None:
        """Start a history. The seed and `faults`, as requested, are recorded for a replay."""
        self.path = path
        self._began = time.monotonic_ns()
        self.wall = time.time_ns() // 1000
        self._lock = threading.Lock()
        self._file = path.open("w", buffering=1)
        self._next = 0
        self._write({"seed": seed, "faults": faults, "began": self.wall})

    def now(self) -> int:
        """Return the microseconds since the history began, on a monotonic clock."""
        return (time.monotonic_ns() - self._began) // 1000

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

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


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
