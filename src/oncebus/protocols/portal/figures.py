"""Figures that the script keeps up to date. Each has a name that identifies it on the page and in the response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oncebus.broker.broker import Broker
from oncebus.engine.store import Span
from oncebus.engine.store.samples import per_second
from oncebus.model.entities import Entity
from oncebus.protocols.portal.layout import ranges, tile
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.wording import number, rate, share
from oncebus.values.durations import SECOND

SERIES = {"new": "New", "duplicates": "Duplicates", "outgoing": "Outgoing"}
"""The series of a plot: new messages and duplicates are above its line, outgoing ones below it."""
SPANS = {
    "10m": ("10 minutes", Span.TEN_MINUTES),
    "1h": ("1 hour", Span.HOUR),
    "24h": ("24 hours", Span.DAY),
}
DEFAULT = "10m"
UNKNOWN = "unknown"

_SPARK_WIDTH, _SPARK_HEIGHT = 100, 20


@dataclass(slots=True)
class Figures:
    """The figures of a page, by name. `states` maps the name of a figure to good, bad or some.

    `span` names the span of the plot, and `end` is when it ends, in seconds since 1970. `sparks` has the points of
    small lines.
    """

    span: str = DEFAULT
    end: float = 0.0
    values: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    series: dict[str, list[int | None]] = field(default_factory=dict)
    sparks: dict[str, str] = field(default_factory=dict)

    async def add_history(self, broker: Broker, entity: Entity | None, *names: str) -> None:
        """Add the series `names` of an entity or of the namespace, their totals, and the current rates."""
        recent = await broker.history(entity, Span.TEN_MINUTES)
        span = SPANS[self.span][1]
        samples = recent if span is Span.TEN_MINUTES else await broker.history(entity, span)
        self.end = samples.end / SECOND
        self.series = {name: getattr(samples, name) for name in names}
        for name in ("incoming", "outgoing"):
            now = per_second(getattr(recent, name), recent.span.step)
            self.values[f"{name}-rate"] = UNKNOWN if now is None else rate(now)
        # The current slot of a long span is not in its samples, but most of it is in those of the shortest span.
        after = max(recent.end - samples.end, 0) // (recent.span.step * SECOND)
        incoming, dropped, outgoing = (
            _sum(getattr(samples, name)) + (_sum(getattr(recent, name)[-after:]) if after else 0)
            for name in ("incoming", "duplicates", "outgoing")
        )
        self.values["incoming-sum"] = f"{number(incoming)} in {SPANS[self.span][0]}"
        self.values["outgoing-sum"] = f"{number(outgoing)} in {SPANS[self.span][0]}"
        self.values["dropped-sum"] = number(dropped)
        self.values["dropped-share"] = f"{share(dropped, incoming)} of incoming, in {SPANS[self.span][0]}"
        if dropped:
            self.states["dropped-sum"] = "some"

    def show(self, name: str) -> Markup:
        """Return the element that shows the figure called `name`."""
        return tag("span", self.values[name], data_value=name, class_="figure", data_state=self.states.get(name))

    def tile(self, title: str, name: str, note: Content) -> Markup:
        """Return a large figure with a title and a note."""
        return tile(title, self.show(name), note)

    def spark(self, name: str) -> Markup:
        """Return the small line called `name`."""
        line = tag("polyline", points=self.sparks[name], data_spark=name)
        box = f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}"
        return tag("svg", line, class_="spark", viewBox=box, preserveAspectRatio="none", aria_hidden="true")

    def plot(self, address: Callable[[str], str]) -> Markup:
        """Return the element in which the script draws the series over time. `address` leads to another span."""
        key = [tag("li", tag("span", class_=f"key {name}"), SERIES[name]) for name in self.series]
        svg = tag("svg", aria_hidden="true", data_plot=True)
        # A slider lies over the drawing, so that the keyboard reaches every value.
        cursor = tag(
            "input", type="range", min=0, max=0, value=0, aria_label="Time in the plot", data_cursor=True, hidden=True
        )
        readout = tag("p", class_="readout", data_readout=True)
        # The script hides this text.
        explanation = "The plot needs JavaScript. The figures above are from when the page was loaded."
        without = tag("p", explanation, class_="note", data_undrawn=True)
        choice = ranges(self.span, SPANS, address, "Range")
        caption = tag("figcaption", "Messages per second", tag("ul", key, class_="legend"), choice)
        drawing = tag("div", svg, cursor, class_="drawing")
        return tag("figure", caption, drawing, readout, without, class_="plot")

    def as_json(self) -> dict[str, object]:
        """Return the figures as JSON, for the script."""
        plot = {"seconds": SPANS[self.span][1].step, "end": self.end, "series": self.series}
        return {"values": self.values, "states": self.states, "sparks": self.sparks, "plot": plot}


def spark_points(counts: Sequence[int]) -> str:
    """Return the points of a small line. It ends at the right; before the first count there is none."""
    if len(counts) < 2:
        return ""
    highest, step = max(*counts, 1), _SPARK_WIDTH / 29
    first = _SPARK_WIDTH - step * (len(counts) - 1)
    return " ".join(
        f"{first + step * at:.1f},{_SPARK_HEIGHT - 1 - (_SPARK_HEIGHT - 2) * count / highest:.1f}"
        for at, count in enumerate(counts)
    )


def _sum(series: Sequence[int | None]) -> int:
    return sum(each or 0 for each in series)
