"""A length of time as a type of option."""

from __future__ import annotations

from typing import Any

import click

from oncebus.durations import BadDuration
from oncebus.entities.timespans import duration_in, iso_timespan


class _Duration(click.ParamType[str]):
    """A length of time, which becomes one that the broker takes."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        try:
            length = duration_in(text, "value")
        except BadDuration as error:
            self.fail(str(error), param, ctx)
        # What the broker reads itself is left to it: it knows fractions that are finer than ours.
        return text if _is_timespan(text) else iso_timespan(length)


DURATION = _Duration()


def _is_timespan(text: str) -> bool:
    return text[:2].upper().lstrip("-").startswith("P") or ":" in text
