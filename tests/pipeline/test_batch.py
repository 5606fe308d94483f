"""What becomes of a part of a micro-batch, whoever runs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from oncebus.entities import CatalogueFiles
from oncebus.inbox import InboxWriter
from oncebus.ledger import Ledger, Owner, StorageError, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.messages import Fate
from oncebus.outbox import Entry, Outbox
from oncebus.pipeline.batch import Places, process_part
from oncebus.pipeline.detect import KEY_SIGNATURE
from oncebus.pipeline.planning import Planner
from pipeline.inbox_rows import rows
from pipeline.judged_rows import QUEUE, catalogue


class Pipeline:
    """A pipeline over a folder whose inbox a test fills."""

    def __init__(self, folder: Path) -> None:
        self.version = catalogue().version
        CatalogueFiles(folder / "catalogue").publish(catalogue())
        self.inbox = InboxWriter.open(folder / "inbox", 4)
        self.outbox = Outbox(folder / "outbox")
        self.ledger = Ledger.open(folder / "ledger")
        self.ledger.describe_or_check(KEY_SIGNATURE)
        self._places = Places(str(folder / "inbox"), str(folder / "catalogue"), self.outbox.begin().drafts)
        self._planner = Planner(folder / "inbox", folder / "catalogue", shards=4, tasks=4)
        self._writer = Writer("0" * 32, "query", Owner.this_process())

    def run(self, first: int, last: int, batch: int, *, for_all_tasks: bool = False) -> list[int]:
        """How many rows each part of the commits had."""
        parts = self._planner.parts(first, last, for_all_tasks=for_all_tasks)
        return [process_part(part, self._places, self.ledger, self._writer, batch) for part in parts]

    def entry(self, after: int) -> Entry:
        found = self.outbox.next_entry(after)
        assert found is not None
        return found

    def fates(self, after: int) -> list[tuple[str, Fate, int | None]]:
        columns = self.entry(after).rows().select(["message_id", "fate", "destination"]).to_pydict().values()
        return [(name, Fate(fate), destination) for name, fate, destination in zip(*columns, strict=True)]


def test_a_part_is_judged_routed_and_published_the_same_whenever_it_is_run_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.inbox.append(rows(2), pipeline.version)
    pipeline.inbox.append(rows(2, 2), pipeline.version)
    for _ in range(2):
        assert pipeline.run(1, 1, 0) == [2]
        assert pipeline.fates(0) == [("m1", Fate.DELIVERED, QUEUE), ("m2", Fate.DELIVERED, QUEUE)]
    for _ in range(2):
        assert pipeline.run(2, 2, 1) == [2]
        assert pipeline.fates(1) == [("m2", Fate.DUPLICATE, None), ("m3", Fate.DELIVERED, QUEUE)]
    assert pipeline.entry(1).batch() == ("query", 1)
    assert pipeline.ledger.summary().ids == 3


def test_parts_without_rows_are_published_too(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.inbox.append(rows(1), pipeline.version)
    assert sorted(pipeline.run(1, 1, 0, for_all_tasks=True)) == [0, 0, 0, 1]
    assert pipeline.entry(0).parts == 4
    assert pipeline.fates(0) == [("m1", Fate.DELIVERED, QUEUE)]


def test_a_part_appears_only_when_its_keys_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.inbox.append(rows(2), pipeline.version)
    publish, synced = LocalStorage.publish, threading.Event()
    sync = os.fsync

    def publish_last(storage: LocalStorage, name: str, pieces: Sequence[bytes]) -> None:
        # The part is on the disk by now, and still nobody sees it.
        assert synced.wait(60)
        assert pipeline.outbox.next_entry(0) is None
        publish(storage, name, pieces)
        assert pipeline.outbox.next_entry(0) is None

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.set()

    def fail(storage: LocalStorage, name: str, pieces: Sequence[bytes]) -> None:
        raise StorageError("No space left on device")

    pipeline.ledger.join(pipeline._writer, 0)
    monkeypatch.setattr(LocalStorage, "publish", fail)
    with pytest.raises(StorageError):
        pipeline.run(1, 1, 0)
    assert pipeline.outbox.next_entry(0) is None
    monkeypatch.setattr(LocalStorage, "publish", publish_last)
    monkeypatch.setattr(os, "fsync", note)
    pipeline.run(1, 1, 0)
    assert len(pipeline.fates(0)) == 2


def test_the_ledger_is_tidied_now_and_then_whatever_comes_between(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    for commit in range(1, 41):
        # Every other batch has no keys.
        made = rows(1, commit) if commit % 2 else [{**rows(1, commit)[0], "key": None}]
        pipeline.inbox.append(made, pipeline.version)
        pipeline.run(commit, commit, commit)
    assert pipeline.ledger.summary().ids == 20
    assert pipeline.ledger.summary().runs < 15
