"""A trial: a query on a cluster of machines, with faults, whose output is compared with the reference model."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from oncebus.ledger import Ledger
from tests.histories import SECOND, START
from tests.machines import LIMIT, Driver, Kind, Machine, Machines, until
from tests.reference import Message, Verdict
from tests.spark.streams import StreamFiles, expected, rows_in
from tests.stalling import order_stall

SCRIPT = Path(__file__).parent / "followed.py"
WINDOW = 60 * SECOND
KEYS = 150
COLUMNS = ("key", "time", "sequence", "window", "is_duplicate", "original_time", "original_sequence")


@dataclass
class Trial(StreamFiles):
    """Everything that a trial does is drawn from its seed; when processes meet is not, so a replay may differ."""

    cluster: Machines
    folder: Path
    seed: int
    how: str = "stream"
    history: list[list[Message]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.now, self.sequence = START, 0
        self.driver: Driver | None = None

    # The source.

    def add(self, batches: int, rows: int, step: float = 1) -> None:
        """Add batches of some rows each. `step` is the time from one to the next, in seconds."""
        for _ in range(batches):
            self.now += int(step * SECOND)
            messages = []
            for _ in range(rows):
                self.sequence += 1
                time = self.now + self.chance.randrange(SECOND)
                messages.append(Message(f"k{self.chance.randrange(KEYS)}", time, self.sequence, WINDOW))
            self.write([messages], first=len(self.history))
            self.history.append(messages)

    # The drivers.

    @property
    def command(self) -> list[str]:
        return [str(SCRIPT), self.cluster.master, str(self.folder), self.how]

    def start(self) -> None:
        self.driver = self.cluster.driver(self.command, self.log)

    def kill_driver(self) -> None:
        if self.driver is not None:
            self.note("driver lost", f"after {self.committed()} batches")
            self.driver.kill()
            self.driver = None

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    def committed(self) -> int:
        """Return how many batches are committed."""
        commits = self.checkpoint / "commits"
        return sum(name.name.isdigit() for name in commits.iterdir()) if commits.exists() else 0

    def until_committed(self, batches: int, *, restarts: bool = False) -> None:
        """Wait until so many batches are committed. A query that fails by itself is an error, unless it `restarts`."""

        def is_done() -> bool:
            if self.driver is not None and self.driver.has_ended:
                self.note("query failed", self.log.read_text(errors="replace")[-1500:])
                assert restarts, "the query failed by itself"
                self.start()
            return self.committed() >= batches

        until(is_done, f"{batches} batches are committed", LIMIT)

    def until_all_committed(self, *, restarts: bool = False) -> None:
        self.until_committed(len(self.history), restarts=restarts)

    # The faults.

    def note(self, fault: str, text: str = "") -> None:
        self.faults[fault] += 1
        self.steps.append(f"{fault} {text}")

    def order_stall(self, batch: int, access: int, tasks: int = 1, kind: str = "ledger") -> None:
        """Order that some tasks of a batch stop before their n-th access to the ledger."""
        self.steps.append(f"stall {tasks} of batch {batch} at access {access}")
        for number in range(tasks):
            order_stall(self.cluster.stalls, batch, kind, access, number)

    def until_stalled(self, machines: int = 1) -> list[Machine]:
        until(lambda: len(self.cluster.stalled()) >= machines, f"{machines} machines with a stopped task")
        found = self.cluster.stalled()
        self.faults["task stopped"] += len(found)
        return found

    def pause(self, machine: Machine, *kinds: Kind) -> None:
        self.note(f"paused {' and '.join(kinds)}" if kinds else "machine paused", machine.name)
        machine.pause(*kinds)

    def go_on(self, machine: Machine, *kinds: Kind) -> None:
        self.note(f"went on {' and '.join(kinds)}" if kinds else "machine went on", machine.name)
        machine.go_on(*kinds)

    def lose(self, machine: Machine) -> None:
        self.note("machine lost", machine.name)
        self.cluster.lose(machine)

    # The end.

    def found(self) -> dict[Message, Verdict]:
        """Return the verdicts in the output. Fails if a row occurs twice."""
        found: dict[Message, Verdict] = {}
        tables = [self.output] if self.how == "stream" else self.output.iterdir()
        for row in (row for table in tables for row in rows_in(table, *COLUMNS)):
            message = Message(row["key"], _micros(row["time"]), row["sequence"], row["window"])
            assert message not in found, f"{message} is twice in the output"
            verdict = Verdict(row["is_duplicate"])
            if verdict.is_duplicate:
                verdict = Verdict(True, _micros(row["original_time"]), row["original_sequence"])
            found[message] = verdict
        return found

    def check(self) -> None:
        """Compare the whole output with the model, and verify the ledger."""
        found, model = self.found(), expected(self.as_cut(self.history))
        wrong = Counter(
            "lost" if m not in found else "accepted twice" if model[m].is_duplicate else "dropped"
            for m in model
            if m not in found or found[m].is_duplicate != model[m].is_duplicate
        )
        rows = f"{len(self.history)} batches, {len(model)} rows, {sum(not v.is_duplicate for v in model.values())} new"
        report = f"seed {self.seed}: {dict(self.faults)}; {rows}; {dict(wrong) or 'exact'}"
        print(f"\n{report}")
        assert not wrong, self.report(report)
        assert found == model, self.report("The verdicts are right, but they name other originals.")
        damage = Ledger.open(self.ledger).check()
        assert not damage.problems, self.report(str(damage.problems))

    def report(self, text: str) -> str:
        stalls = self.cluster.stalls / "log"
        stopped = stalls.read_text() if stalls.exists() else ""
        return "\n".join([text, *self.steps, stopped])


def _micros(time: datetime) -> int:
    return int(time.timestamp()) * SECOND + time.microsecond
