"""Repairs the data folder of a stopped broker whose ledger is lost or damaged.

The old ledger moves aside, and a new one begins. All ids are forgotten, but no message is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from oncebus.engine.agreement import NO_LEDGER
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import InboxReader, InboxWriter
from oncebus.engine.outbox import Outbox
from oncebus.engine.store import Store
from oncebus.model.messages import Result
from oncebus.values import disk
from oncebus.values.errors import OncebusError


class CannotRepair(OncebusError):
    """The folder does not hold the data of a broker."""


def give_up_ledger(folders: Folders, now: int) -> Path | None:
    """Let the broker begin a new ledger. Return the folder where the old one is now, or None if there was none.

    Neither a gateway nor a pipeline may be running. Raises `InboxInUse` or `StoreInUse` for a gateway; the caller must
    make sure that no pipeline runs. If the process is killed, no broker opens the folder until this is called again.
    """
    with _open_store(folders) as store:
        if folders.repair.exists():
            now = int(json.loads(folders.repair.read_bytes())["now"])
        disk.publish(folders.data, folders.repair.name, [json.dumps({"now": now}).encode() + b"\n"])
        # Without this, the checks at the next start would find keys that the new ledger does not know.
        Outbox(folders.outbox).rewrite(_without_key, NO_LEDGER)
        aside = folders.ledger.with_name(f"ledger-{now}")
        if folders.ledger.exists() and not aside.exists():
            disk.replace(folders.ledger, aside)
            disk.sync(folders.data)
        with store.transaction():
            store.progress.forget_judged()
        disk.delete(folders.repair)
        disk.sync(folders.data)
    return aside if aside.exists() else None


def _without_key(result: Result) -> Result:
    return result._replace(row=result.row._replace(key=None))


@contextmanager
def _open_store(folders: Folders) -> Iterator[Store]:
    """Open the inbox and the store, so that no gateway can open them."""
    shards = InboxReader(folders.inbox).shards()
    if shards is None or not folders.store.exists():
        raise CannotRepair(f"Data folder '{folders.data}' has no inbox or no store. Give the folder of a broker.")
    with InboxWriter.open(folders.inbox, shards), closing(Store.open(folders.store)) as store:
        yield store
