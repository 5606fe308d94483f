"""Prints the tables of docs/reference/windows.md: how a ledger grows with rate and window, on paper and counted.

python -m bench.scale            print all tables
python -m bench.scale write      put them into docs/reference/windows.md
python -m bench.scale count      count the simulations again, into docs/bench/scale.json (a minute)
python -m bench.scale measure    measure this machine again, into docs/bench/scale.json (a minute)
python -m bench.scale spark      the same for Spark (two minutes); the CPU time of a row is from docs/decisions/0019
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.scale_model import AZURE, DAY, LISTINGS, PRICES, S3, SCANS, Ledger, Load, Store

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "windows.md"
RESULTS = ROOT / "docs" / "bench" / "scale.json"

HOUR = 3_600
WINDOWS = {"10 minutes": 600, "1 day": DAY, "7 days": 7 * DAY, "30 days": 30 * DAY}
INTERVAL = 10
MACHINES = {1_000: (1, 2), 100_000: (2, 16), 1_000_000: (8, 64)}
"""By messages per second: machines, and parts. As many parts as cores, on machines with 8."""

PAGE_SECONDS = 0.1
"""How long a store takes for a page of a listing. An assumption."""

MOST_MAPS = 65_530
"""Linux's default for `vm.max_map_count`. A process that gets all parts in turn maps all their runs."""

SIMULATIONS = {
    "70/s, 1 day, batches of 5 minutes, 1 part": (Load(70, DAY, 300, 1), 2 * DAY),
    "2/s, 7 days, batches of 10 minutes, 1 part": (Load(2, 7 * DAY, 600, 1), 14 * DAY),
    "1/s, 30 days, batches of an hour, 2 parts": (Load(1, 30 * DAY, HOUR, 2), 1024 * HOUR),
    "100/s, 10 minutes, batches of 5 s, 2 parts, 3 machines": (Load(100, 600, 5, 2, machines=3), HOUR),
}
"""By title: the load, and how many seconds are counted after the first window: some cycles of the largest merges."""


def load_of(rate: int, window: float, interval: float = INTERVAL, parts: int = 0) -> Load:
    machines, usual = MACHINES[rate]
    return Load(rate, window, interval, parts or usual, machines=machines)


class Measured:
    """The measurements of one machine, and what follows from them for a ledger."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.points: dict[str, float] = results["measured"]

    def cpu_per_million(self, ledger: Ledger) -> dict[str, float]:
        """Return the CPU seconds per million rows, by what they are spent on."""
        points, load = self.points, ledger.load
        batches = 1 / (load.rate * load.interval)
        fixed = points["batch_cpu_seconds"] + load.parts * points["task_cpu_seconds"]
        listings = LISTINGS * ledger.files * load.parts * batches
        return {
            "rows": points["operator_cpu_seconds_per_million_rows"],
            "batches and tasks": fixed * batches * 1e6,
            "lookups": ledger.runs_per_part * points["lookup_nanoseconds_per_row_and_run"] / 1e3,
            "merges": (ledger.amplification - 1) * (1 - load.duplicates) * points["merge_cpu_seconds_per_million_ids"],
            "listings": listings * points["listing_cpu_microseconds_per_file"],
        }

    def cores(self, ledger: Ledger) -> float:
        return sum(self.cpu_per_million(ledger).values()) * ledger.load.rate / 1e6


def listing_seconds(ledger: Ledger, store: Store = S3) -> float:
    """Return how long a task waits for its listings in a batch."""
    return LISTINGS * SCANS * ledger.pages(store) * PAGE_SECONDS


def passed(ledger: Ledger, measured: Measured) -> list[str]:
    """Return which limits are passed: listings take half of a batch, lookups cost more than rows, maps are too many."""
    found = []
    if listing_seconds(ledger) > ledger.load.interval / 2:
        found.append("listing")
    cpu = measured.cpu_per_million(ledger)
    if cpu["lookups"] > cpu["rows"]:
        found.append("lookups")
    if ledger.files > MOST_MAPS:
        found.append("memory maps")
    return found


# Texts


def number(value: float) -> str:
    """Return a number in a form that a person can compare: 950, 12 k, 5.4 M, 2.3 G, 1.2 T."""
    for unit, name in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= unit:
            scaled = value / (1e3 if name == " k" else unit)
            return f"{scaled:,.1f}{name}" if scaled < 10 else f"{scaled:,.0f}{name}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def cores(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def size(value: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if value >= unit:
            return f"{value / unit:,.1f} {name}" if value < 100 * unit else f"{value / unit:,.0f} {name}"
    return f"{value / 1e3:,.0f} kB"


def dollars(value: float) -> str:
    return f"${value:,.0f}" if value >= 10 else f"${value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def every_load() -> Iterable[tuple[str, str, Ledger]]:
    for rate in MACHINES:
        for window, seconds in WINDOWS.items():
            yield f"{rate:,}/s", window, Ledger(load_of(rate, seconds))


# Tables


def sizes_table(measured: Measured) -> str:
    rows = []
    for rate, window, ledger in every_load():
        rows.append(
            [
                rate, window, number(ledger.ids), size(ledger.bytes), number(ledger.runs_per_part),
                number(ledger.files), cores(measured.cores(ledger)), size(ledger.stored_ids),
                ", ".join(passed(ledger, measured)) or "–",
            ]
        )  # fmt: skip
    head = ["rate", "window", "ids", "ledger", "runs per part", "files", "busy cores", "filters", "limits passed"]
    return table(head, rows)


def daily_table() -> str:
    rows = []
    for rate, window, ledger in every_load():
        rows.append(
            [
                rate, window, number(ledger.files_per_day), f"{ledger.amplification:.1f}",
                size(ledger.merged_bytes_per_day), size(ledger.bytes_read_per_day), number(ledger.puts_per_day(S3)),
                number(ledger.gets_per_day), number(ledger.lists_per_day(S3)), number(ledger.lists_per_day(AZURE)),
            ]
        )  # fmt: skip
    head = [
        "rate", "window", "files written", "times an id is written", "merged", "downloaded", "PUT", "GET", "LIST, S3",
        "LIST, Azure",
    ]  # fmt: skip
    return table(head, rows)


def price_table() -> str:
    rows = []
    for rate, window, ledger in every_load():
        on_s3, on_azure = ledger.dollars(S3), ledger.dollars(AZURE)
        rows.append(
            [
                rate, window, dollars(on_s3.lists), dollars(on_s3.puts), dollars(on_s3.gets), dollars(on_s3.storage),
                f"**{dollars(on_s3.total)}**", f"**{dollars(on_azure.total)}**",
            ]
        )  # fmt: skip
    return table(["rate", "window", "LIST", "PUT", "GET", "storage", "S3, a month", "Azure, a month"], rows)


def prices_table() -> str:
    rows = [
        [
            store.name, f"${store.put_price * 1e3:.4f}", f"${store.list_price * 1e3:.4f}",
            f"${store.get_price * 1e3:.4f}", "free", f"${store.gigabyte_price:.3f}", f"{store.page:,}",
        ]
        for store in (S3, AZURE)
    ]  # fmt: skip
    head = ["", "1,000 PUT", "1,000 LIST", "1,000 GET", "DELETE", "GB and month", "names in a page"]
    return table(head, rows)


def levers_table(measured: Measured) -> str:
    rows = []
    for interval, parts in ((1, 16), (10, 16), (60, 16), (300, 16), (10, 4), (10, 64), (60, 64), (60, 256)):
        ledger = Ledger(load_of(100_000, 7 * DAY, interval, parts))
        rows.append(
            [
                f"{interval} s", f"{parts}", number(ledger.new_ids), number(ledger.new_ids * ledger.span),
                number(ledger.runs_per_part), number(ledger.files), f"{listing_seconds(ledger):.1f} s",
                cores(measured.cores(ledger)), dollars(ledger.dollars(S3).total),
                ", ".join(passed(ledger, measured)) or "–",
            ]
        )  # fmt: skip
    head = [
        "batch every", "parts", "new ids per part", "ids in a full run", "runs per part", "files",
        "a task waits for listings", "busy cores", "S3, a month", "limits passed",
    ]  # fmt: skip
    return table(head, rows)


def split_table(measured: Measured) -> str:
    rows = []
    for ledgers, interval in ((1, 10), (4, 10), (16, 10), (16, 60), (64, 60)):
        machines, parts = MACHINES[1_000_000]
        load = Load(1_000_000 / ledgers, DAY, interval, max(parts // ledgers, 4), machines=max(machines // ledgers, 1))
        ledger = Ledger(load)
        rows.append(
            [
                f"{ledgers}", f"{interval} s", f"{load.parts}", number(ledger.runs_per_part), number(ledger.files),
                size(ledger.bytes), f"{listing_seconds(ledger):.1f} s", cores(ledgers * measured.cores(ledger)),
                dollars(ledgers * ledger.dollars(S3).total), ", ".join(passed(ledger, measured)) or "–",
            ]
        )  # fmt: skip
    head = [
        "ledgers", "batch every", "parts each", "runs per part", "files each", "size each", "a task waits for listings",
        "busy cores in all", "S3 in all, a month", "limits passed",
    ]  # fmt: skip
    return table(head, rows)


def cpu_table(measured: Measured) -> str:
    rows = []
    for rate, window, ledger in every_load():
        cpu = measured.cpu_per_million(ledger)
        rows.append([rate, window, *(f"{each:.2f}" for each in cpu.values()), f"**{sum(cpu.values()):.1f}**"])
    return table(["rate", "window", "rows", "batches and tasks", "lookups", "merges", "listings", "all"], rows)


POINTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "operator_cpu_seconds_per_million_rows": ("`detect_duplicates`, per million rows", "{:.1f} CPU s".format),
    "floor_cpu_seconds_per_million_rows": ("of it the same plan without detection", "{:.1f} CPU s".format),
    "judge_cpu_seconds_per_million_rows": ("of it the verdicts, against 4 runs", "{:.2f} CPU s".format),
    "bytes_per_id": ("an id on disk, with a sequence number", "{:.1f} bytes".format),
    "lookup_nanoseconds_per_row_and_run": ("a lookup, per row and run, files in memory", "{:.1f} ns".format),
    "merge_cpu_seconds_per_million_ids": ("a merge, per million ids", "{:.2f} CPU s".format),
    "largest_merge_cpu_seconds": ("the largest merge, 8 million ids", "{:.1f} CPU s".format),
    "largest_merge_peak_bytes": ("memory of a process that does it", size),
    "listing_cpu_microseconds_per_file": ("a listing, per file", "{:.1f} CPU µs".format),
    "batch_cpu_seconds": ("a batch in Spark, besides its rows and tasks", "{:.1f} CPU s".format),
    "task_cpu_seconds": ("a task in Spark, besides its rows", "{:.2f} CPU s".format),
}  # fmt: skip


def points_table(measured: Measured) -> str:
    return table(["", "measured"], [[text, shown(measured.points[name])] for name, (text, shown) in POINTS.items()])


COUNTED: dict[str, Callable[[Ledger], float]] = {
    "runs": lambda ledger: ledger.runs_per_part * ledger.load.parts,
    "files": lambda ledger: ledger.files,
    "ids in the files": lambda ledger: ledger.stored_ids,
    "files written a day": lambda ledger: ledger.files_per_day,
    "bytes written a day": lambda ledger: ledger.bytes_per_day,
    "PUT a day": lambda ledger: ledger.puts_per_day(S3),
    "LIST a day": lambda ledger: ledger.lists_per_day(S3),
    "GET a day": lambda ledger: ledger.gets_per_day,
    "bytes read a day": lambda ledger: ledger.bytes_read_per_day,
}
"""What a simulation counts, and what the model says about it."""


def modelled(load: Load) -> dict[str, float]:
    return {name: of(Ledger(load)) for name, of in COUNTED.items()}


def counted(load: Load, seconds: float) -> dict[str, float]:
    """Run a simulation, and return what it counts under the names of `COUNTED`."""
    # Imported here because the tables need no ledger.
    from bench.scale_counted import count, memory_folder

    with memory_folder() as folder:
        found = count(load, S3, warm_up=load.window, counted=seconds, folder=folder)
    counts = found.counts
    values = [
        statistics.fmean(found.runs), statistics.fmean(found.files), statistics.fmean(found.ids),
        *(
            found.per_day(each)
            for each in (
                counts.published, counts.bytes_written, counts.puts, counts.pages, counts.gets, counts.bytes_read
            )
        ),
    ]  # fmt: skip
    return dict(zip(COUNTED, values, strict=True))


def counted_table(results: dict[str, Any]) -> str:
    head, rows = ["", *SIMULATIONS], []
    for name in COUNTED:
        cells = []
        for title, (load, _) in SIMULATIONS.items():
            model, real = modelled(load)[name], results["counted"][title][name]
            shown = size if "bytes" in name else number
            cells.append(f"{shown(model)} / {shown(real)} ({100 * (real / model - 1):+.1f} %)")
        rows.append([name, *cells])
    return table(head, rows)


def tables() -> dict[str, str]:
    """Return all tables of the page by name."""
    results = json.loads(RESULTS.read_text())
    measured = Measured(results)
    return {
        "points": points_table(measured),
        "sizes": sizes_table(measured),
        "cpu": cpu_table(measured),
        "daily": daily_table(),
        "prices": prices_table(),
        "costs": price_table(),
        "levers": levers_table(measured),
        "split": split_table(measured),
        "counted": counted_table(results),
    }


_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def with_tables(page: str, made: dict[str, str]) -> str:
    """Return the page with its tables replaced. Raises `KeyError` if the page names a table that is not made."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def main(command: str = "print") -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if command == "print":
        print(PRICES + ".")
        for name, text in tables().items():
            print(f"\n{name}\n\n{text}")
    elif command == "write":
        PAGE.write_text(with_tables(PAGE.read_text(), tables()))
    elif command == "count":
        results["counted"] = {title: counted(load, seconds) for title, (load, seconds) in SIMULATIONS.items()}
    elif command == "measure":
        from bench.scale_measured import measure

        results["machine"] = {"python": platform.python_version(), "cores": os.cpu_count()}
        results["measured"] = {**results.get("measured", {}), **measure()}
    elif command == "spark":
        program = [sys.executable, "-m", "bench.scale_spark"]
        answer = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
        results["measured"] = {**results.get("measured", {}), **json.loads(answer.splitlines()[-1])}
    else:
        raise SystemExit(f"Command '{command}' is none of print, write, count, measure, spark.")
    if command in ("count", "measure", "spark"):
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
