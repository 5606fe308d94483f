"""Demonstrates `oncebus dedup`: duplicates within a run and across runs, each with its original.

Writes everything to a temporary folder and deletes it at the end.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MESSAGES = 180_000  # 20 ms apart, so that a message can come exactly one window after another.
WINDOW = timedelta(minutes=10)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield an hour of messages in order of time. One in ten is a repeat, some of them exactly one window later."""
    chance = random.Random(1)
    step = timedelta(hours=1) / count
    per_window = WINDOW // step
    for at in range(count):
        repeated = at
        if at > per_window and chance.random() < 0.1:
            back = per_window if chance.random() < 0.05 else chance.randrange(1, per_window)
            repeated = at - back
        yield {"id": f"order-{repeated}", "at": (START + at * step).isoformat(), "amount": repeated % 100}


def write_halves(folder: Path) -> tuple[Path, Path]:
    """Write the hour to two files. Many repeats in the second file have their original in the first."""
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    with first.open("w") as early, second.open("w") as late:
        for number, message in enumerate(messages(MESSAGES)):
            (early if number < MESSAGES // 2 else late).write(json.dumps(message) + "\n")
    return first, second


def dedup(source: Path, folder: Path) -> Path:
    """Run the command as a user would, and return the folder of dropped rows."""
    out, dropped = folder / f"{source.stem}-unique", folder / f"{source.stem}-dropped"
    command = ["dedup", str(source), "--key", "id", "--time", "at", "--window", "10 minutes"]
    command += ["--out", str(out), "--duplicates", str(dropped), "--ledger", str(folder / "ledger")]
    print("\n$ oncebus " + " ".join(f"'{word}'" if " " in word else word for word in command), flush=True)
    subprocess.run([sys.executable, "-m", "oncebus.programs.cli", *command], check=True)
    return dropped


def show(dropped: Path, before: str, count: int = 3) -> None:
    """Print some dropped rows, preferably some whose original came before a time."""
    rows = [json.loads(line) for part in sorted(dropped.glob("part-*")) for line in part.open()]
    across = [row for row in rows if row["original_time"] < before]
    if across:
        print(f"{len(across):,} of {len(rows):,} dropped rows have their original in the earlier run, for example:")
    else:
        print(f"{len(rows):,} rows were dropped, for example:")
    for row in (across or rows)[:count]:
        print(f"  {row['id']:>14} at {row['at']} is a duplicate of the one at {row['original_time']}")


def show_boundary(folder: Path) -> None:
    """Print how many ids were accepted twice because they came again exactly one window later."""
    times: dict[str, list[datetime]] = {}
    for part in folder.glob("*-unique/part-*"):
        for line in part.open():
            row = json.loads(line)
            times.setdefault(row["id"], []).append(datetime.fromisoformat(row["at"]))
    exact = sum(max(accepted) - min(accepted) == WINDOW for accepted in times.values())
    print(f"{exact:,} ids came again exactly one window after their original. Those are new, not duplicates.")


def main() -> None:
    """Generate messages, deduplicate both halves with one ledger, and show that a finished run is not repeated."""
    with tempfile.TemporaryDirectory(prefix="oncebus-demo-") as name:
        folder = Path(name)
        print(f"{MESSAGES:,} messages over an hour, in two files in a temporary folder, which is deleted at the end.")
        print("After the first ten minutes, about one in ten repeats an id of the ten minutes before it.")
        first, second = write_halves(folder)
        half = (START + timedelta(minutes=30)).isoformat()
        show(dedup(first, folder), before=START.isoformat())
        show(dedup(second, folder), before=half)
        show_boundary(folder)
        print("\nThe same command again sees that the run has finished, and changes nothing:")
        dedup(second, folder)


if __name__ == "__main__":
    main()
