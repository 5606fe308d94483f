"""`oncebus watch`: shows the figures of one entity, live."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress

import click
from rich.live import Live

from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.figures import Load, Rates, age, looks
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_lines_option
from oncebus.programs.cli.paths import subscription_path
from oncebus.programs.cli.printing import console, print_line, table
from oncebus.programs.cli.top import in_json, interval_option
from oncebus.values.durations import DAY

_TITLES = {
    "incoming": "incoming",
    "new": "  new",
    "duplicates": "  duplicates, dropped",
    "outgoing": "outgoing: deliveries to receivers",
    "completed": "completed",
    "abandoned": "abandoned, or lock expired",
    "dead_lettered": "dead-lettered",
    "expired": "expired",
}
_OF_TOPIC = ("incoming", "new", "duplicates", "expired")


@click.command(short_help="Watch one queue, topic or subscription.", epilog="Example: oncebus watch orders --once")
@click.argument("entity")
@click.option("--once", is_flag=True, help="Print the figures once and exit.")
@interval_option
@json_lines_option
@broker_options
def watch(broker: BrokerLocation, entity: str, once: bool, interval: float, as_json: bool) -> None:
    """Show the queue or topic ENTITY, or the subscription TOPIC/NAME, until Ctrl-C: the backlog, the age of its oldest
    message, the receivers, and what comes in and goes out, in total and per second."""
    with broker.connect(DAY) as client, suppress(KeyboardInterrupt):
        seen = itertools.islice(_of_entity(looks(client, interval), entity), 1 if once else None)
        if as_json:
            for load, rates in seen:
                print_line(in_json(load, rates))
        elif once or not console().is_terminal:
            for load, rates in seen:
                click.echo(_line(load, rates.get(load.entity)))
        else:
            with Live(console=console(), auto_refresh=False, screen=True) as live:
                for load, rates in seen:
                    rows = _rows(load, rates.get(load.entity), time.time())
                    shown = table(f"{load.kind} {load.entity}", ("", "now or total", "per second"), rows)
                    for column in shown.columns[1:]:
                        column.justify = "right"
                    live.update(shown, refresh=True)


def _of_entity(seen: Iterator[tuple[list[Load], Rates]], entity: str) -> Iterator[tuple[Load, Rates]]:
    names = [name.lower() for name in (entity.strip("/"), subscription_path(entity)) if name]
    for loads, rates in seen:
        found = {load.entity.lower(): load for load in loads}
        load = next((found[name] for name in names if name in found), None)
        if load is None:
            raise RequestError(f"There is no queue, topic or subscription '{entity}'.")
        yield load, rates


def _rows(load: Load, speeds: dict[str, float] | None, now: float) -> list[list[str]]:
    rows = []
    if load.kind != "topic":
        oldest, asked = load.figures.get("oldest", 0), load.figures.get("last_receive")
        rows = [
            ["backlog: active messages", str(load.count("active")), ""],
            ["oldest message that waits", age(oldest) if oldest else "none waits", ""],
            ["receivers", load.receivers(), ""],
            ["last receive", "unknown" if asked is None else f"{age(max(now - asked, 0))} ago", ""],
            ["dead letters", str(load.count("dead_letter")), ""],
        ]
    rows.append(["scheduled", str(load.count("scheduled")), ""])
    for name, title in _TITLES.items():
        if load.kind != "topic" or name in _OF_TOPIC:
            rows.append([title, str(load.count(name)), "" if speeds is None else f"{speeds[name]:.1f}"])
    return rows


def _line(load: Load, speeds: dict[str, float] | None) -> str:
    """Return the figures in one line, for a pipe."""
    per_second = {} if speeds is None else {name: f" ({speeds[name]:.1f}/s)" for name in speeds}
    words = [f"{name} {load.count(name)}{per_second.get(name, '')}" for name in ("incoming", "duplicates")]
    if load.kind != "topic":
        words += [f"{name} {load.count(name)}{per_second.get(name, '')}" for name in ("outgoing", "completed")]
        oldest = load.figures.get("oldest", 0)
        words += [f"backlog {load.count('active')}", f"oldest {age(oldest) if oldest else '-'}"]
        words += [f"receivers {load.receivers()}", f"dead letters {load.count('dead_letter')}"]
    return ", ".join(words)
