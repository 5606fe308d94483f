"""Figures of several contenders over several rounds: medians, ranges, and ratios of the same round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table

CAPTION = "More is better for figures per second, less for all others."


class Spread(NamedTuple):
    """What several rounds gave."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.least)}–{shown(self.most)})"


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the range of some values, of which there must be at least one."""
    return Spread(statistics.median(values), min(values), max(values))


def shown(figure: float) -> str:
    """Return a figure with about three digits."""
    size = abs(figure)
    return f"{figure:,.0f}" if size >= 100 else f"{figure:.1f}" if size >= 10 else f"{figure:.2f}"


def turns(names: Sequence[str], round_number: int) -> list[str]:
    """Return the contenders in the order of this round: another one begins each time, because the machine is rested."""
    first = round_number % len(names) if names else 0
    return [*names[first:], *names[:first]]


class Figures:
    """The figures of all contenders, each with one value per round, in the order in which they were noted."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, dict[int, float]]] = {}
        """By name of the figure, contender and round."""

    def note(self, name: str, contender: str, round_number: int, value: float) -> None:
        self.values.setdefault(name, {}).setdefault(contender, {})[round_number] = value

    def of(self, name: str, contender: str) -> Spread | None:
        found = self.values.get(name, {}).get(contender)
        return spread(list(found.values())) if found else None

    def ratio(self, name: str, contender: str, base: str) -> Spread | None:
        """Return contender : base. Only values of the same round are compared: a slow round is slow for both."""
        above, below = (self.values.get(name, {}).get(each, {}) for each in (contender, base))
        common = [above[each] / below[each] for each in above if below.get(each)]
        return spread(common) if common else None

    def table(self, title: str, base: str, contenders: Sequence[str]) -> Table:
        """Return median (range) of each contender, and the ratio of `base` to each of the others."""
        others = [each for each in contenders if each != base]
        table = Table("", *contenders, *(f"{base} : {other}" for other in others), title=title, caption=CAPTION)
        for name in self.values:
            if not any(each in self.values[name] for each in contenders):
                continue
            cells = [self.of(name, each) for each in contenders] + [self.ratio(name, base, other) for other in others]
            table.add_row(name, *("" if cell is None else str(cell) for cell in cells))
        return table
