"""`oncebus duplicates`: shows the dropped messages, each with its original."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from oncebus.programs.cli.client import Client
from oncebus.programs.cli.figures import age, look
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_lines_option, moment_in
from oncebus.programs.cli.printing import print_line, print_table, visible
from oncebus.values.durations import DAY, MINUTE

_EXAMPLE = "oncebus duplicates orders --since 1h --json"
_FOLLOW_SECONDS = 1.0
_COLUMNS = ("message id", "sequence number", "dropped", "after", "original's sequence number", "original sent")

Drop = dict[str, Any]


@click.command(short_help="Show the messages that were dropped as duplicates.", epilog=f"Example: {_EXAMPLE}")
@click.argument("entity", required=False)
@click.option("--message-id", metavar="ID", help="Show only duplicates with this message id.")
@click.option("--since", metavar="TIME", help="Show only duplicates from this time on, or a duration back from now.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    metavar="COUNT",
    show_default=True,
    help="Show at most this many, the newest.",
)
@click.option("--follow", is_flag=True, help="Then show new ones as they are dropped, until Ctrl-C.")
@json_lines_option
@broker_options
def duplicates(
    broker: BrokerLocation,
    entity: str | None,
    message_id: str | None,
    since: str | None,
    limit: int,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the duplicates that a running broker has dropped, newest first, and how long after its original each came.

    Without ENTITY, shows those of all queues and topics, which needs a key with Manage.
    """
    since = None if since is None else moment_in(since, "--since", is_past=True)
    with broker.connect(DAY if follow else 5 * MINUTE, entity or "") as client, suppress(KeyboardInterrupt):
        record = _Record(client, entity, message_id, since)
        found = sorted(record.new(limit), key=lambda drop: (drop["time"], drop["sequenceNumber"]), reverse=True)[:limit]
        if follow:
            _follow(record, found, as_json)
        elif as_json:
            for drop in found:
                print_line(drop)
        elif found:
            columns, rows = ([] if entity else ["entity"]) + list(_COLUMNS), [_row(drop, entity) for drop in found]
            if any("counted" in drop for drop in found):
                # An entity has a detection key of its own.
                columns.append("counted")
                rows = [[*row, _counted_text(drop)] for row, drop in zip(rows, found, strict=True)]
            print_table(f"Duplicates dropped at {entity}" if entity else "Duplicates dropped", columns, rows)
        else:
            which = f"duplicate of '{visible(message_id)}' was" if message_id else "duplicates were"
            since_when = f" since {since}" if since else ""
            at = f" at '{entity}'" if entity else ""
            click.echo(f"No {which} dropped{at}{since_when}.{client.readiness_note()}")


class _Record:
    """The record of drops of one entity or of all. Each call of `new` returns what was dropped since the last one."""

    def __init__(self, client: Client, entity: str | None, message_id: str | None, since: str | None) -> None:
        self._client = client
        self._entity = entity
        self._message_id = message_id
        self._since = since
        self._seen: dict[str, int] = {}

    def new(self, most: int | None = None) -> list[Drop]:
        """Return new duplicates, oldest first for each entity, and at most the newest ones of each."""
        return [drop for entity in self._entities() for drop in deque(self._of(entity), most)]

    def _entities(self) -> list[str]:
        if self._entity is not None:
            return [self._entity]
        # Most entities have dropped nothing: do not ask for theirs.
        loads = [load for load in look(self._client) if load.kind != "subscription"]
        return [load.entity for load in loads if load.count("duplicates")]

    def _of(self, entity: str) -> Iterator[Drop]:
        """Yield the duplicates that an entity dropped, oldest first. Fetches them page by page."""
        path, after = f"/{quote(entity, safe='/')}/$duplicates", self._seen.get(entity, 0)
        for drop in self._client.pages(path, "duplicates", after, message_id=self._message_id, since=self._since):
            self._seen[entity] = drop.pop("record")
            yield {"entity": entity, **drop} if self._entity is None else drop


def _follow(record: _Record, found: list[Drop], as_json: bool) -> None:
    """Print the duplicates so far, oldest first as in a log, and then new ones as they come."""
    found.reverse()
    while True:
        for drop in found:
            if as_json:
                print_line(drop)
            else:
                click.echo(_line(drop))
        time.sleep(_FOLLOW_SECONDS)
        found = record.new()


def after_original(drop: Drop) -> str:
    """Return how long after its original a duplicate came, for people; "" if that is unknown."""
    original = drop["original"] or {}
    if original.get("time") is None:
        return ""
    passed = datetime.fromisoformat(drop["time"]) - datetime.fromisoformat(original["time"])
    return age(passed.total_seconds())


def _line(drop: Drop) -> str:
    original = drop["original"] or {}
    at = f"{drop['entity']}  " if "entity" in drop else ""
    later = f", {passed} after it" if (passed := after_original(drop)) else ""
    of = f"duplicate of {original.get('sequenceNumber', 'an unknown message')}{later}"
    return f"{drop['time']}  {at}{visible(drop['messageId'])}  {drop['sequenceNumber']}: {of}"


def _row(drop: Drop, entity: str | None) -> list[str]:
    original = drop["original"] or {}
    return [
        *([] if entity else [drop["entity"]]),
        drop["messageId"],
        str(drop["sequenceNumber"]),
        drop["time"],
        after_original(drop),
        str(original.get("sequenceNumber", "")),
        original.get("time") or "",
    ]


def _counted_text(drop: dict[str, Any]) -> str:
    counted = drop.get("counted")
    return "messageId" if counted is None else f"{counted['by']} {counted['id'] or ''}".rstrip()
