"""Checks that all parts of a data folder belong together, and that none was restored from an older backup.

A broker runs them when it opens, before it changes anything. A crash at any instant leaves the parts like this:

- The store has ingested no commit that the inbox does not have, and the inbox still has every other commit.
- The outbox ends with an entry that holds the last ingested commit, or continues from there without a gap. It has no
  entry of a commit that the inbox does not have.
- The catalogue has every version that a commit in the inbox names, unless the store has ingested that commit.
- Every body file that a message names exists.
- Ledger and outbox: see `oncebus.engine.agreement`.

Spark's checkpoint is not compared: each start makes a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oncebus.engine.agreement import DataMismatch, check_ledger
from oncebus.engine.folders import Folders
from oncebus.engine.inbox import BodyFiles, InboxReader
from oncebus.engine.outbox import Outbox
from oncebus.engine.store import Store
from oncebus.ledger import Ledger


def check_inbox_is_there(folders: Folders) -> None:
    """Raise `DataMismatch` if there is a store but no inbox. Call it before an inbox is created."""
    if folders.store.exists() and InboxReader(folders.inbox).shards() is None:
        raise DataMismatch(f"Inbox '{folders.inbox}' is missing, but there is a store '{folders.store}'")


def check_parts(folders: Folders, appended: int, store: Store, versions: Sequence[int]) -> None:
    """Raise `DataMismatch` unless the parts belong together.

    `appended` is the inbox's last commit, `versions` are the versions of the catalogue that exist.
    """
    _check_positions(folders, appended, store.progress.position())
    _check_catalogue(folders, appended, store, versions)
    check_ledger(folders.outbox, Ledger.open(folders.ledger), store.progress.judged_time())


def _check_positions(folders: Folders, appended: int, position: int) -> None:
    ingested = f"Store '{folders.store}' has ingested commit {position}"
    if position > appended:
        raise DataMismatch(f"{ingested}, but inbox '{folders.inbox}' ends with commit {appended}")
    oldest = InboxReader(folders.inbox).oldest()
    if oldest is not None and oldest > position + 1:
        raise DataMismatch(f"{ingested}, but inbox '{folders.inbox}' begins with commit {oldest}")
    outbox = Outbox(folders.outbox)
    newest = outbox.newest()
    judged = 0 if newest is None else newest.last
    if judged > appended:
        raise DataMismatch(
            f"Outbox '{folders.outbox}' ends with commit {judged}, but inbox '{folders.inbox}' with commit {appended}"
        )
    if judged < position:
        raise DataMismatch(f"{ingested}, but outbox '{folders.outbox}' ends with commit {judged}")
    if outbox.complete_up_to(position) < judged:
        raise DataMismatch(f"{ingested}, but outbox '{folders.outbox}' lacks the commits that come next")


def _check_catalogue(folders: Folders, appended: int, store: Store, versions: Sequence[int]) -> None:
    reader, position = InboxReader(folders.inbox), store.progress.position()
    newest = max(versions, default=0)
    named = store.progress.catalogue_version()
    oldest = reader.oldest()
    if oldest is not None and oldest <= appended:
        named = max(named, *reader.catalogues(appended, appended))
    if named > newest:
        raise DataMismatch(
            f"Catalogue '{folders.catalogue}' ends with version {newest}, but version {named} was in use"
        )
    if missing := reader.catalogues(position + 1, appended) - {*versions}:
        raise DataMismatch(
            f"Catalogue '{folders.catalogue}' does not have version {min(missing)}, but messages in the pipeline were "
            "sent under it"
        )


def check_bodies(folders: Folders, store: Store, awaited: Collection[str]) -> None:
    """Raise `DataMismatch` unless every body file that messages name exists.

    `awaited` has the names in rows that the store has not ingested yet.
    """
    found = {*BodyFiles(folders.body_files).names()}
    missing = sorted({name for name in (*store.body_files.list_needed(), *awaited) if name not in found})
    if missing:
        raise DataMismatch(
            f"Folder '{folders.body_files}' does not have body file '{missing[0]}' of a message"
            + (f", nor {len(missing) - 1} more" if len(missing) > 1 else ""),
            " To give up a body for good, create an empty file of that name there.",
        )
