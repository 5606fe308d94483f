"""How far apart repeats come, for people who choose a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND, duration_text

SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999)
"""The quantiles that are shown."""

STEPS = (
    SECOND,
    10 * SECOND,
    MINUTE,
    10 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
    7 * DAY,
    30 * DAY,
)
"""The upper ends of the classes of gaps that are counted; the last class has no end."""

_BARS = 30


@dataclass(frozen=True, slots=True)
class Gaps:
    """How long after the first row with its key each repeat came. All gaps are in microseconds.

    `quantiles` has a gap for each of `SHARES`: that share of the repeats came within it. `counts` has the number of
    repeats in each class of `STEPS`. `pauses` are the same quantiles of the time since the row before with the same
    key, which counts if duplicates extend the window; None if it is not known. `largest` and the quantiles are None if
    nothing repeats. `rows` and `without_key` are None if only the repeats are known.
    """

    repeats: int
    quantiles: tuple[int, ...] | None
    largest: int | None
    counts: tuple[int, ...]
    pauses: tuple[int, ...] | None = None
    rows: int | None = None
    without_key: int | None = None

    @classmethod
    def of(cls, gaps: Sequence[int]) -> Gaps:
        """Return the figures of these gaps."""
        if not gaps:
            return cls(0, None, None, (0,) * (len(STEPS) + 1))
        values = np.asarray(gaps, np.int64)
        counts = np.bincount(np.searchsorted(STEPS, values, side="right"), minlength=len(STEPS) + 1)
        quantiles = np.quantile(values, SHARES, method="inverted_cdf")
        return cls(len(values), tuple(map(int, quantiles)), int(values.max()), tuple(map(int, counts)))

    def __str__(self) -> str:
        """Return a line such as `90 repeats in 1,000 rows: 99.9 % came within 4 min 10 s, the last after 2 h`."""
        if self.quantiles is None or self.largest is None:
            return f"no repeats{self._of_rows()}"
        share, noun = SHARES.index(0.999), "repeat" if self.repeats == 1 else "repeats"
        return (
            f"{self.repeats:,} {noun}{self._of_rows()}: {_percent(SHARES[share])} "
            f"came within {duration_text(self.quantiles[share])}, the latest after {duration_text(self.largest)}"
        )

    def table(self) -> list[tuple[str, str, str]]:
        """Return rows of: the share of repeats, the gap within which they came, and the pause before them."""
        if self.quantiles is None or self.largest is None:
            return []
        pauses = self.pauses or (None,) * len(SHARES)
        rows = [
            (_percent(share), duration_text(gap), "" if pause is None else duration_text(pause))
            for share, gap, pause in zip(SHARES, self.quantiles, pauses, strict=True)
        ]
        return [*rows, ("all", duration_text(self.largest), "")]

    def picture(self) -> list[tuple[str, int, str]]:
        """Return rows of: a class of gaps, its number of repeats, and a bar. Leaves out empty classes at the ends."""
        texts = [duration_text(end) for end in STEPS]
        names = [f"under {texts[0]}", *(f"{low} to {high}" for low, high in pairwise(texts)), f"{texts[-1]} or more"]
        filled = [at for at, count in enumerate(self.counts) if count]
        if not filled:
            return []
        most = max(self.counts)
        return [
            (names[at], self.counts[at], "█" * -(-self.counts[at] * _BARS // most))
            for at in range(filled[0], filled[-1] + 1)
        ]

    def to_json(self) -> dict[str, object]:
        """Return the figures as an object of JSON. Gaps are in seconds."""
        seconds = None if self.quantiles is None else [gap / SECOND for gap in self.quantiles]
        return {
            "rows": self.rows,
            "without_key": self.without_key,
            "repeats": self.repeats,
            "within_seconds": None if seconds is None else dict(zip(map(str, SHARES), seconds, strict=True)),
            "largest_seconds": None if self.largest is None else self.largest / SECOND,
        }

    def _repr_html_(self) -> str:
        """Return two small tables, which notebooks show."""
        shares = "".join(_html_row(row) for row in self.table())
        bars = "".join(_html_row((name, f"{count:,}", bar)) for name, count, bar in self.picture())
        head = _html_row(("share of repeats", "came within", "pause before"), "th") if shares else ""
        return f"<p>{escape(str(self))}</p><table>{head}{shares}</table><table>{bars}</table>"

    def _of_rows(self) -> str:
        return "" if self.rows is None else f" in {self.rows:,} rows"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def _html_row(cells: Sequence[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
