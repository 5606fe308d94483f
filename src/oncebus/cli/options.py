"""Options that several commands share, and the type of an option that takes a duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncebus.durations import BadDuration
from oncebus.entities.timespans import duration_in, iso_timespan

Command = Callable[..., None]


class _Duration(click.ParamType[str]):
    """Accepts a duration in any form that people type, and converts it to one that the broker accepts."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        try:
            length = duration_in(text, "value")
        except BadDuration as error:
            self.fail(str(error), param, ctx)
        # Pass on a text that the broker can read: it may be finer than the microseconds that we convert to.
        return text if _is_timespan(text) else iso_timespan(length)


def _is_timespan(text: str) -> bool:
    return text[:2].upper().lstrip("-").startswith("P") or ":" in text


DURATION = _Duration()

name_option = click.option("--name", "-n", required=True, metavar="NAME", help="Its name.")
topic_option = click.option("--topic-name", required=True, metavar="NAME", help="The topic it belongs to.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


def azure_options(command: Command) -> Command:
    """Add the options that `az` requires, so that its command lines work unchanged."""
    group = click.option("--resource-group", "-g", metavar="NAME", help="For compatibility with `az`; has no effect.")
    named = click.option(
        "--namespace-name", metavar="NAME", help="If given, must be the name of the broker's namespace."
    )
    return named(group(command))
