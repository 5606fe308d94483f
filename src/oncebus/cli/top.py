"""`oncebus top`: what all entities hold, and how fast it comes and goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click
from rich.live import Live
from rich.table import Table

from oncebus.cli.client import Client
from oncebus.cli.printing import console, print_line, table
from oncebus.cli.reaching import Reach, broker_options
from oncebus.durations import DAY

_STATES = {"active": "active", "scheduled": "scheduled", "dead_letter": "dead letters"}
_TOTALS = {"oncebus_messages_accepted_total": "accepted", "oncebus_messages_duplicates_total": "duplicates"}
COLUMNS = ("entity", "kind", *_STATES.values(), *_TOTALS.values(), "accepted/s", "duplicates/s")


@dataclass(slots=True)
class Load:
    """What one entity holds and has counted."""

    entity: str
    kind: str
    figures: dict[str, int] = field(default_factory=dict)


def loads_of(metrics: str) -> list[Load]:
    """What the metrics tell of each entity, by name."""
    # Here, because no other command needs it.
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, Load] = {}
    lines = (line for line in metrics.splitlines() if line.startswith("oncebus_messages"))
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            labels = sample.labels
            figure = _TOTALS.get(sample.name) or _STATES.get(labels.get("state", ""))
            if figure is not None and "entity" in labels:
                load = found.setdefault(labels["entity"], Load(labels["entity"], labels.get("kind", "")))
                load.figures[figure] = int(sample.value)
    return [found[name] for name in sorted(found)]


def rates_of(before: list[Load] | None, after: list[Load], seconds: float) -> dict[str, dict[str, float]]:
    """How many a second were accepted and dropped at each entity between two looks; nothing where it was not there.

    An entity that was made anew counts from 0 again.
    """
    known = {load.entity: load for load in before or []}
    rates = {}
    for load in after:
        old = known.get(load.entity)
        if old is not None and seconds > 0:
            rates[load.entity] = {
                total: max(0, load.figures.get(total, 0) - old.figures.get(total, 0)) / seconds
                for total in _TOTALS.values()
            }
    return rates


@click.command(short_help="Show what all entities hold, live.", epilog="Example: oncebus top --once")
@click.option("--once", is_flag=True, help="Print it once, and end.")
@click.option(
    "--interval",
    default=2.0,
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    show_default=True,
    help="Between two looks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each entity, at each look.")
@broker_options
def top(reach: Reach, once: bool, interval: float, as_json: bool) -> None:
    """Show all queues, topics and subscriptions: active and scheduled messages, dead letters, and what was accepted and
    dropped as a duplicate, in all and a second. Ends with Ctrl-C."""
    with reach.connected(DAY) as client, suppress(KeyboardInterrupt):
        if once:
            _print(_look(client), {}, as_json)
        elif as_json or not console().is_terminal:
            for loads, rates in _looks(client, interval):
                _print(loads, rates, as_json)
        else:
            with Live(console=console(), auto_refresh=False, screen=True) as live:
                for loads, rates in _looks(client, interval):
                    live.update(_table(loads, rates), refresh=True)


def _look(client: Client) -> list[Load]:
    return loads_of(client.ask("GET", "/metrics").body.decode())


def _looks(client: Client, interval: float) -> Iterator[tuple[list[Load], dict[str, dict[str, float]]]]:
    before, seen_at = None, 0.0
    while True:
        loads, now = _look(client), time.monotonic()
        yield loads, rates_of(before, loads, now - seen_at)
        before, seen_at = loads, now
        time.sleep(interval)


def _print(loads: list[Load], rates: dict[str, dict[str, float]], as_json: bool) -> None:
    if as_json:
        for load in loads:
            figures = {name: load.figures.get(name, 0) for name in (*_STATES.values(), *_TOTALS.values())}
            print_line({"entity": load.entity, "kind": load.kind, **figures, "perSecond": rates.get(load.entity)})
    elif not loads:
        click.echo("There are no entities.")
    else:
        console().print(_table(loads, rates))


def _table(loads: list[Load], rates: dict[str, dict[str, float]]) -> Table:
    made = table(None, COLUMNS, [_row(load, rates.get(load.entity)) for load in loads])
    for column in made.columns[2:]:
        column.justify = "right"
    return made


def _row(load: Load, rates: dict[str, float] | None) -> list[str]:
    figures = [str(load.figures.get(name, 0)) for name in (*_STATES.values(), *_TOTALS.values())]
    speeds = ["" if rates is None else f"{rates[total]:.1f}" for total in _TOTALS.values()]
    return [load.entity, load.kind, *figures, *speeds]
