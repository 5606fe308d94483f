"""Figures that the script keeps up to date. Each has a name that identifies it on the page and in the response."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncebus.portal.markup import Content, Markup, tag
from oncebus.portal.rates import SLOT_SECONDS, SLOTS, Samples

SERIES = {"new": "New", "dropped": "Duplicates", "copies": "New"}


@dataclass(slots=True)
class Figures:
    """The figures of a page, by name. `states` maps the name of a figure to good or bad."""

    values: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    series: dict[str, list[int]] = field(default_factory=dict)

    def shown(self, name: str) -> Markup:
        """Return the element that shows the figure called `name`."""
        return tag("span", self.values[name], data_value=name, class_="figure", data_state=self.states.get(name))

    def tile(self, title: str, name: str, note: Content = None) -> Markup:
        """Return a large figure with a title."""
        explanation = tag("p", note, class_="note") if note is not None else None
        return tag("div", tag("h3", title), tag("p", self.shown(name), class_="large"), explanation, class_="tile")

    def plot(self) -> Markup:
        """Return the element in which the script draws the series over time."""
        names = list(self.series)
        key = [tag("li", tag("span", class_=f"key {name}"), SERIES[name]) for name in names]
        minutes = SLOT_SECONDS * SLOTS // 60
        svg = tag(
            "svg",
            role="img",
            aria_label=f"Messages per second in the last {minutes} minutes",
            data_plot=" ".join(names),
        )
        # The script hides this text.
        explanation = "The plot needs JavaScript. The figures above are from when the page was loaded."
        without = tag("p", explanation, class_="note", data_undrawn=True)
        caption = tag("figcaption", f"Messages per second, last {minutes} minutes", tag("ul", key, class_="legend"))
        return tag("figure", caption, svg, without, class_="plot")

    def as_json(self) -> dict[str, object]:
        """Return the figures as JSON, for the script."""
        plot = {"seconds": SLOT_SECONDS, "series": self.series}
        return {"values": self.values, "states": self.states, "plot": plot}


def series_of(samples: Samples, *names: str) -> dict[str, list[int]]:
    """Return the series new, dropped and copies of the samples, as far as `names` lists them."""
    found = {"new": samples.new, "dropped": samples.duplicates, "copies": samples.copies}
    return {name: found[name] for name in names}
