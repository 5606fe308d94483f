"""Repairs of the data folder of a stopped broker.

A **clock** that was ahead: the repair takes every time in the future that the broker wrote, and sets it to the time of
the repair.

- Ids are remembered for their window from then on. Ids that the wrong clock made expire are remembered again for the
  rest of their window, if their entries still exist.
- Messages count as enqueued at the time of the repair and keep their order and their time to live. Locks expire at most
  five minutes later.
- The scheduled time of a message stays: its sender asked for it.

Other effects of the wrong clock stay: messages that fell due or expired, and ids whose entries were deleted.

A **ledger** that is lost or damaged: the repair moves it aside, and a new one begins. All ids are forgotten, but no
message is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from oncebus.engine.agreement import NO_LEDGER, check_no_repair
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxReader, InboxWriter
from oncebus.engine.inbox.rewriting import rewrite_rows
from oncebus.engine.outbox import Outbox
from oncebus.engine.store import Store
from oncebus.ledger.rewriting import bring_back
from oncebus.model.entities.limits import LONGEST_LOCK
from oncebus.values import disk
from oncebus.values.errors import OncebusError


class CannotRepair(OncebusError):
    """The folder does not hold the data of a broker."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a clock repair: the new time, and how many ids, rows and messages got it.

    `rows` are in the inbox or the outbox; a row that is in both is counted twice.
    """

    now: int
    ids: int
    rows: int
    messages: int


def repair_clock(folders: Folders, now: int, step: Callable[[str], None] = lambda what: None) -> Repaired:  # noqa: ARG005
    """Move all times after `now` to `now`. `step` is called with the name of each part before it is repaired.

    Neither a gateway nor a pipeline may be running. Raises `InboxInUse` or `StoreInUse` for a gateway; the caller must
    make sure that no pipeline runs. If the process is killed, no broker opens the folder until this is called again.
    The second call continues with the time of the first.
    """
    with _opened(folders) as (inbox, store):
        now = _begun(folders, "clock", now)
        step("ledger")
        ids = bring_back(folders.ledger, now)
        step("outbox")
        rows = Outbox(folders.outbox).rewrite(lambda table: brought_back(table, now))
        step("inbox")
        rows += rewrite_rows(folders.inbox, store.position(), inbox.last_commit, lambda batch: brought_back(batch, now))
        step("store")
        with store.transaction():
            messages = store.bring_back(now, LONGEST_LOCK)
        _done(folders)
    return Repaired(now, ids, rows, messages)


def brought_back(rows: pa.Table, now: int) -> pa.Table:
    """Return rows of the inbox or the outbox with times after `now` set to `now`; the same object if there are none."""
    latest = pa.scalar(now, pa.int64())
    time, expires = rows.column("time"), rows.column("expires")
    lead = pc.max_element_wise(pc.subtract(time, latest), pa.scalar(0, pa.int64()))
    if not pc.any(pc.greater(lead, 0)).as_py():
        return rows
    changed = {"time": pc.subtract(time, lead), "expires": pc.subtract(expires, lead)}
    if "original_time" in rows.schema.names:
        changed["original_time"] = pc.min_element_wise(rows.column("original_time"), latest, skip_nulls=False)
    for name, values in changed.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def give_up_ledger(folders: Folders, now: int) -> Path | None:
    """Let the broker begin a new ledger. Return the folder where the old one is now, or None if there was none.

    The same conditions apply as for `repair_clock`, including those after a kill.
    """
    with _opened(folders) as (_, store):
        now = _begun(folders, "ledger", now)
        # Without this, the checks at the next start would find keys that the new ledger does not know.
        Outbox(folders.outbox).rewrite(_without_keys, NO_LEDGER)
        aside = folders.ledger.with_name(f"ledger-{now}")
        if folders.ledger.exists() and not aside.exists():
            disk.replace(folders.ledger, aside)
            disk.sync(folders.data)
        with store.transaction():
            store.forget_judged()
        _done(folders)
    return aside if aside.exists() else None


def _without_keys(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("key")
    return rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))


@contextmanager
def _opened(folders: Folders) -> Iterator[tuple[InboxWriter, Store]]:
    """Open the inbox and the store, so that no gateway can open them."""
    shards = InboxReader(folders.inbox).shards()
    if shards is None or not folders.store.exists():
        raise CannotRepair(f"Data folder '{folders.data}' has no inbox or no store. Give the folder of a broker.")
    with InboxWriter.open(folders.inbox, shards) as inbox, closing(Store.open(folders.store)) as store:
        yield inbox, store


def _begun(folders: Folders, what: str, now: int) -> int:
    """Record durably that a repair is under way. Return the time to set: that of the first call."""
    if folders.repair.exists():
        begun = json.loads(folders.repair.read_bytes())
        if begun["repairs"] != what:
            check_no_repair(folders)
        now = min(now, int(begun["now"]))
    disk.publish(folders.data, folders.repair.name, [json.dumps({"repairs": what, "now": now}).encode() + b"\n"])
    return now


def _done(folders: Folders) -> None:
    disk.delete(folders.repair)
    disk.sync(folders.data)
