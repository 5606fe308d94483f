"""`oncebus top`: shows the message counts and rates of all entities, or of one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.figures import STATES, TOTALS, Load, Rates, age, look, looks
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.paths import subscription_path
from oncebus.programs.cli.printing import console, print_line, table
from oncebus.values.durations import DAY

_COUNTS = ("active", "oldest", "receivers", "dead_letter", "incoming", "duplicates", "outgoing", "completed")
_SPEEDS = ("incoming", "outgoing")
_TITLES = [name.replace("dead_letter", "dead letters") for name in _COUNTS] + [f"{name}/s" for name in _SPEEDS]
COLUMNS = ("entity", "kind", *_TITLES)


@click.command(short_help="Show message counts and rates, live.", epilog="Example: oncebus top --once")
@click.argument("entity", required=False)
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
def top(broker: BrokerLocation, entity: str | None, once: bool, interval: float, as_json: bool) -> None:
    """Show all queues, topics and subscriptions, or only ENTITY (TOPIC/NAME for a subscription): active messages, the
    age of the oldest one that waits, receivers that are attached (or `polling`), dead letters; how many messages came
    in, how many of these were duplicates, how many deliveries went out, and how many messages were completed. Stop it
    with Ctrl-C."""
    with broker.connect(DAY) as client, suppress(KeyboardInterrupt):
        if once:
            _print(_choose(look(client), entity), {}, as_json)
        elif as_json or not console().is_terminal:
            for loads, rates in looks(client, interval):
                _print(_choose(loads, entity), rates, as_json)
        else:
            with Live(console=console(), auto_refresh=False, screen=True) as live:
                for loads, rates in looks(client, interval):
                    live.update(_table(_choose(loads, entity), rates), refresh=True)


def _choose(loads: list[Load], entity: str | None) -> list[Load]:
    if entity is None:
        return loads
    names = [name.lower() for name in (entity.strip("/"), subscription_path(entity)) if name]
    found = [load for load in loads if load.entity.lower() in names]
    if not found:
        raise RequestError(f"There is no queue, topic or subscription '{entity}'.")
    return found


def _in_json(load: Load, rates: Rates) -> dict[str, Any]:
    """Return the figures of an entity as JSON. `perSecond` is null the first time."""
    counts = {_camel(name): load.count(name) for name in (*STATES, *TOTALS)}
    speeds = rates.get(load.entity)
    per_second = None if speeds is None else {_camel(name): round(speed, 3) for name, speed in speeds.items()}
    polled = load.figures.get("polled")
    consumers = {
        "oldestSeconds": load.figures.get("oldest"),
        "receivers": load.figures.get("receivers"),
        "isPolled": None if polled is None else bool(polled),
    }
    return {"entity": load.entity, "kind": load.kind, **counts, **consumers, "perSecond": per_second}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _print(loads: list[Load], rates: Rates, as_json: bool) -> None:
    if as_json:
        for load in loads:
            print_line(_in_json(load, rates))
    elif not loads:
        click.echo("There are no entities.")
    else:
        console().print(_table(loads, rates))


def _table(loads: list[Load], rates: Rates) -> Table:
    made = table(None, COLUMNS, [_row(load, rates.get(load.entity)) for load in loads])
    for column in made.columns[2:]:
        column.justify = "right"
    return made


def _row(load: Load, rates: dict[str, float] | None) -> list[str]:
    speeds = ["" if rates is None else f"{rates[name]:.1f}" for name in _SPEEDS]
    return [load.entity, load.kind, *(_cell(load, name) for name in _COUNTS), *speeds]


def _cell(load: Load, name: str) -> str:
    if name == "oldest":
        return age(load.figures[name]) if load.figures.get(name) else ""
    return load.receivers() if name == "receivers" else str(load.count(name))
