"""Options that several commands share, and the values of those that take a duration or a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncebus.broker.clock import wall_time
from oncebus.model.entities.timespans import FORMS, duration_in, iso_timespan
from oncebus.programs.cli.errors import RequestError
from oncebus.values.durations import BadDuration, NotADuration

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


def moment_in(text: str, option: str, *, is_past: bool = False) -> str:
    """Return the time that `text` names, in the format of the HTTP protocol. Raises `RequestError`.

    A duration counts from now, or back from now if `is_past`.
    """
    # Imported late, because few commands need it.
    from oncebus.protocols.http.times import iso8601, parse_time

    if parse_time(text) is not None:
        return text
    try:
        length = duration_in(text, f"option {option}")
    except NotADuration:
        raise RequestError(
            f"Option {option} has value '{text}'. Not a time like 2026-01-31T08:30:00Z, and not a duration. {FORMS}"
        ) from None
    return iso8601(max(wall_time() - length, 0) if is_past else wall_time() + length)


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
