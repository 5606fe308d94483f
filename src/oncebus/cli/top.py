"""`oncebus top`: shows the message counts and rates of all entities."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import click
from rich.live import Live
from rich.table import Table

from oncebus.cli.client import Client
from oncebus.cli.connector import Connector, broker_options
from oncebus.cli.printing import console, print_line, table
from oncebus.durations import DAY

_STATES = {"active": "active", "scheduled": "scheduled", "dead_letter": "dead letters"}
_NAMES = ("incoming", "duplicates", "outgoing", "completed")
_TOTALS = {f"oncebus_messages_{name}_total": name for name in _NAMES}
COLUMNS = ("entity", "kind", *_STATES.values(), *_NAMES, *(f"{name}/s" for name in _NAMES))


@dataclass(slots=True)
class Load:
    """The message counts of one entity, by column of the table."""

    entity: str
    kind: str
    figures: dict[str, int] = field(default_factory=dict)


def loads_of(metrics: str) -> list[Load]:
    """Return the counts of each entity from the metrics' text, sorted by name."""
    # Imported late, because no other command needs it.
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
    """Return the totals per second, by entity and column, for each entity in both lists.

    The rate is 0 for an entity that was deleted and created again in between, because its counters were reset.
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


@click.command(short_help="Show message counts and rates, live.", epilog="Example: oncebus top --once")
@click.option("--once", is_flag=True, help="Print the table once and exit.")
@click.option(
    "--interval",
    default=2.0,
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    show_default=True,
    help="Time between two updates.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line and entity, at each update.")
@broker_options
def top(connector: Connector, once: bool, interval: float, as_json: bool) -> None:
    """Show all queues, topics and subscriptions with their active and scheduled messages and dead letters. In total and
    per second, show the messages that came in, the duplicates among them, the deliveries that went out to receivers,
    and the messages that receivers completed. Stop it with Ctrl-C."""
    with connector.connect(DAY) as client, suppress(KeyboardInterrupt):
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
