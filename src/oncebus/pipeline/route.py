"""Decides the fate of each row, under the catalogue version that the row was accepted under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebus.amqp.types import DecodeError, EncodeError
from oncebus.model.entities.detection_keys import counted_id, property_of
from oncebus.model.filters.errors import BadRule
from oncebus.model.messages import INBOX_SCHEMA, NOBODY, OUTBOX_SCHEMA, Fate
from oncebus.pipeline.rules import Routes, copies_of

# The columns that routing needs if no subscription evaluates a filter.
_COLUMNS_WITHOUT_FILTERS = ["scheduled", "origin_entity", "time", "expires", "session"]


@dataclass(slots=True)
class _Outcome:
    """Collects the rows of the outbox.

    `of` has, for each, the index of its inbox row; the other fields have the new values.
    """

    of: list[int] = field(default_factory=list)
    fate: list[int] = field(default_factory=list)
    destination: list[int | None] = field(default_factory=list)
    reason: list[str | None] = field(default_factory=list)
    description: list[str | None] = field(default_factory=list)
    changed: dict[int, dict[str, object]] = field(default_factory=dict)

    def add(
        self,
        row: int,
        fate: Fate,
        destination: int | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        self.of.append(row)
        self.fate.append(fate)
        self.destination.append(destination)
        self.reason.append(reason)
        self.description.append(description)


def route(table: pa.Table, routes_at: Callable[[int], Routes]) -> pa.Table:
    """Return the outbox rows for a table of judged inbox rows.

    `table` has the columns of the inbox and `is_duplicate`, `original_sequence` and `original_time`. `routes_at`
    returns the routes of a catalogue version.
    """
    table = table.combine_chunks()
    entity = table.column("entity").to_numpy()
    version = table.column("catalogue").to_numpy()
    is_duplicate = table.column("is_duplicate").to_numpy()
    is_forget = table.column("window").to_numpy() < 0
    outcome = _Outcome()
    for row in np.flatnonzero(is_duplicate & ~is_forget).tolist():
        detection_key = routes_at(version[row].item()).detection_key(entity[row].item())
        counted = None if detection_key is None else _counted(table, row, detection_key)
        outcome.add(row, Fate.DUPLICATE, reason=detection_key, description=counted)
    for row in np.flatnonzero(is_forget).tolist():
        outcome.add(row, Fate.FORGET)
    rest = np.flatnonzero(~is_duplicate & ~is_forget & (entity != NOBODY))
    groups = np.unique(np.stack([version[rest], entity[rest]], axis=1), axis=0)
    for number, target in groups.tolist():
        chosen = rest[(version[rest] == number) & (entity[rest] == target)]
        _route_entity(table, chosen.tolist(), target, routes_at(number), outcome)
    return _outbox_rows(table, outcome)


def _counted(table: pa.Table, row: int, detection_key: str) -> str | None:
    """Return the id of a duplicate, for the record: a property, or the digest of the key if the body counts."""
    if property_of(detection_key) is None:
        key: bytes = table.column("key")[row].as_py()
        return key.hex()
    try:
        counted = counted_id(detection_key, table.column("head")[row].as_py(), b"")
    except (DecodeError, EncodeError):
        return None
    return None if counted is None else counted.text


def _route_entity(table: pa.Table, rows: list[int], entity: int, routes: Routes, outcome: _Outcome) -> None:
    """Decide the fate of the new messages of one entity."""
    if routes.is_queue(entity):
        for row in rows:
            outcome.add(row, Fate.DELIVERED, entity)
        return
    try:
        targets = routes.targets(entity)
    except BadRule as error:
        for row in rows:
            outcome.add(row, Fate.QUARANTINED, reason=type(error).__name__, description=str(error))
        return
    if targets is None:
        for row in rows:
            outcome.add(row, Fate.DISCARDED)
        return
    has_filters = not all(target.takes_all for target in targets)
    columns = [column for column in table.column_names if column != "body"] if has_filters else _COLUMNS_WITHOUT_FILTERS
    for row, values in zip(rows, table.select(columns).take(rows).to_pylist(), strict=True):
        if values["scheduled"] is not None and values["origin_entity"] != entity:
            # The topic keeps it until it falls due. Then it is routed by the rules of that time.
            outcome.add(row, Fate.DELIVERED, entity)
            continue
        try:
            made = copies_of(values, targets)
        except Exception as error:
            # An unexpected error in one row must not stop the others: Spark would run the batch again, and it would
            # fail again.
            reason, text = type(error).__name__, str(error)
            outcome.add(row, Fate.QUARANTINED, reason=reason, description=text)
            continue
        for copy in made:
            if copy.changes:
                outcome.changed[len(outcome.of)] = dict(copy.changes)
            fate = Fate.DEAD_LETTERED if copy.reason else Fate.DELIVERED
            outcome.add(row, fate, copy.destination, copy.reason, copy.description)
        if not made:
            outcome.add(row, Fate.UNROUTED)


def _outbox_rows(table: pa.Table, outcome: _Outcome) -> pa.Table:
    fate = pa.array(outcome.fate, pa.int8())
    # Many copies of a moderate body may exceed what a column of 32-bit binaries can hold.
    for name in ("head", "body"):
        field_, at = OUTBOX_SCHEMA.field(name), table.schema.get_field_index(name)
        table = table.set_column(at, field_, table.column(at).cast(field_.type))
    taken = table.take(pa.array(outcome.of, pa.int64()))
    columns = {name: taken.column(name) for name in INBOX_SCHEMA.names}
    # Keep only the record of rows that are not delivered. Keep a quarantined row whole, so that people can look at it.
    is_bare = pc.is_in(fate, pa.array([Fate.DUPLICATE, Fate.UNROUTED, Fate.DISCARDED], pa.int8()))
    columns["body"] = pc.if_else(is_bare, pa.scalar(None, pa.large_binary()), columns["body"])
    columns["head"] = pc.if_else(is_bare, pa.scalar(b"", pa.large_binary()), columns["head"])
    for name in sorted({name for changes in outcome.changed.values() for name in changes}):
        values = columns[name].to_pylist()
        for at, changes in outcome.changed.items():
            values[at] = changes.get(name, values[at])
        columns[name] = pa.array(values, OUTBOX_SCHEMA.field(name).type)
    columns |= {
        "fate": fate,
        "destination": pa.array(outcome.destination, pa.int64()),
        "reason": pa.array(outcome.reason, pa.string()),
        "description": pa.array(outcome.description, pa.string()),
        "original_sequence": taken.column("original_sequence"),
        "original_time": taken.column("original_time"),
    }
    return pa.table([columns[name] for name in OUTBOX_SCHEMA.names], schema=OUTBOX_SCHEMA)
