"""Shows the figures of a benchmark as a table and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Results = list[dict[str, Any]]


def ratios(results: Results) -> list[tuple[str, float, str]]:
    """Return (name, measured ratio, goal) for all pairs of contenders that were both measured."""
    rate = {(result["scenario"], result["contender"]): result["rows_per_second"] for result in results}
    held = {result["scenario"]: result for result in results if result["contender"] == "oncebus"}
    found = []

    def ratio(text: str, above: tuple[str, str], below: tuple[str, str], goal: str) -> None:
        if above in rate and below in rate:
            found.append((text, rate[above] / rate[below], goal))

    ratio("oncebus : rocksdb, main", ("main", "oncebus"), ("main", "rocksdb"), "at least 5")
    ratio("oncebus : rocksdb, 20M ids", ("20M ids", "oncebus"), ("20M ids", "rocksdb"), "at least 10")
    ratio("oncebus : floor, main", ("main", "oncebus"), ("main", "floor"), "at least 0.8")
    ratio("oncebus, 100M ids : 1M ids", ("100M ids", "oncebus"), ("1M ids", "oncebus"), "at least 0.85")
    if "100M ids" in held:
        most = held["100M ids"]
        found.append(("bytes per id on disk", most["ledger_bytes"] / most["ids"], "at most 34"))
        if "1M ids" in held:
            grown = most["worker_bytes"] - held["1M ids"]["worker_bytes"]
            found.append(("resident bytes per id", grown / (most["ids"] - held["1M ids"]["ids"]), "at most 2.5"))
    return found


def print_table(results: Results) -> None:
    console = Console(width=110)
    table = Table("scenario", "contender", "rows/s", "rounds", "ids held", "bytes/id", "workers, MB")
    for result in results:
        ids = result.get("ids")
        table.add_row(
            result["scenario"],
            result["contender"],
            f"{result['rows_per_second']:,.0f}",
            " ".join(f"{rate // 1000}k" for rate in result["every_round"]),
            f"{ids:,.0f}" if ids else "",
            f"{result['ledger_bytes'] / ids:.1f}" if ids else "",
            f"{result['worker_bytes'] / 1e6:.0f}" if ids else "",
        )
    console.print(table)
    goals = Table("ratio", "measured", "goal")
    for text, value, goal in ratios(results):
        goals.add_row(text, f"{value:.2f}", goal)
    console.print(goals)


def write_plot(results: Results, target: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "oncebus", "font.size": 10})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    main = [result for result in results if result["scenario"] == "main"]
    left.barh([result["contender"] for result in main], [result["rows_per_second"] / 1000 for result in main])
    left.set(title="4 M messages in batches of 200 k", xlabel="thousand rows/s")
    for name in ("oncebus", "rocksdb"):
        points = sorted(
            (result["remembered"], result["rows_per_second"] / 1000)
            for result in results
            if result["contender"] == name and result["remembered"]
        )
        if points:
            right.plot([at for at, _ in points], [rate for _, rate in points], "o-", label=name)
    right.set(
        title="ids in the window", xscale="log", ylim=(0, None), ylabel="thousand rows/s", xlabel="remembered ids"
    )
    if right.lines:
        right.legend()
    figure.savefig(target, metadata={"Date": None})
