"""A part of a micro-batch is judged, routed and published, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from oncebus.engine.outbox import OutboxError
from oncebus.ledger import StorageError
from oncebus.ledger.local_storage import LocalStorage
from oncebus.model.messages import Fate
from tests.pipeline.inbox_rows import rows
from tests.pipeline.judged_rows import QUEUE
from tests.pipeline.scene import Pipeline


def test_a_repeated_part_is_judged_routed_and_published_the_same(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.append(rows(2))
    pipeline.append(rows(2, 2))
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
    pipeline.append(rows(1))
    assert sorted(pipeline.run(1, 1, 0, for_all_tasks=True)) == [0, 0, 0, 1]
    assert pipeline.entry(0).parts == 4
    assert pipeline.fates(0) == [("m1", Fate.DELIVERED, QUEUE)]


def test_a_part_appears_only_when_its_keys_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.append(rows(2))
    publish, synced = LocalStorage.publish, threading.Event()
    sync = os.fsync

    def publish_last(storage: LocalStorage, name: str, pieces: Sequence[bytes]) -> None:
        # The part is on disk by now, but not visible yet.
        assert synced.wait(60)
        assert pipeline.outbox.next_entry(0) is None
        publish(storage, name, pieces)
        assert pipeline.outbox.next_entry(0) is None

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.set()

    def fail(storage: LocalStorage, name: str, pieces: Sequence[bytes]) -> None:
        raise StorageError("No space left on device")

    pipeline.ledger.join(pipeline.writer, 0)
    monkeypatch.setattr(LocalStorage, "publish", fail)
    with pytest.raises(StorageError):
        pipeline.run(1, 1, 0)
    assert pipeline.outbox.next_entry(0) is None
    monkeypatch.setattr(LocalStorage, "publish", publish_last)
    monkeypatch.setattr(os, "fsync", note)
    pipeline.run(1, 1, 0)
    assert len(pipeline.fates(0)) == 2


def test_the_ledger_is_tidied_regularly_although_some_batches_have_no_keys(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    for commit in range(1, 41):
        # Every other batch has no keys.
        made = rows(1, commit)
        if commit % 2 == 0:
            made[0]["key"] = None
        pipeline.append(made)
        pipeline.run(commit, commit, commit)
    assert pipeline.ledger.summary().ids == 20
    assert pipeline.ledger.summary().runs < 15


def test_a_task_that_outlives_its_query_does_not_enter_the_ledger(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.append(rows(2))
    pipeline.outbox.begin()
    with pytest.raises(OutboxError, match="comes too late: a newer query has deleted"):
        pipeline.run(1, 1, 0)
    assert pipeline.ledger.newest() is None
