"""Lengths of time on the command line: as the protocols write them, in words, or as people type them, like 10m."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from oncebus.durations import BadDuration, NotADuration, parse_duration, spelt_out
from oncebus.entities import BadRequest, iso_timespan, parse_timespan

FORMS = "Write it like 90s, 10m, 2h, 7d, PT10M, 00:10:00 or '10 minutes'."


def duration_in(text: str, name: str) -> int:
    """The microseconds of a duration. `name` is what the error calls it. Raises `BadDuration`."""
    why: BadDuration
    try:
        return parse_duration(spelt_out(text), name, text)
    except NotADuration:
        why = NotADuration(f"{name.capitalize()} {text!r} is not a duration. {FORMS}")
    except BadDuration as error:
        why = error
    # As the protocols read it: with colons, or in ISO 8601 with fractions that are finer than ours.
    with suppress(BadRequest):
        return parse_timespan(text, name)
    raise why


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
