"""A ledger that is seeded from a table is as if all rows of the table had been checked."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from oncebus.ledger import LedgerInUse, LedgerMismatch
from oncebus.spark import BadSeed, Ledger, Seeded
from oncebus.spark.columns import BadColumn
from oncebus.values.errors import OncebusError
from tests.histories import SECOND, START
from tests.reference import Message, Reference
from tests.spark.streams import FAR_FUTURE, Stream, verdicts, write_batch
from tests.spark.test_batch import checked, frame_of
from tests.spark.test_streaming import history_of

OPTIONS: dict[str, Any] = {"key": "key", "time": "time", "window": "window", "sequence": "sequence"}
WINDOW = 60 * SECOND


def table_of(spark: SparkSession, folder: Path, messages: list[Message]) -> DataFrame:
    write_batch(folder / "table", 0, messages)
    return spark.read.parquet(str(folder / "table"))


def files(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()


def test_later_rows_get_the_verdicts_of_the_model(spark: SparkSession, tmp_path: Path) -> None:
    held, later = history_of(2, size=60, seed=4)
    table = table_of(spark, tmp_path, held)
    ledger = Ledger.open(tmp_path / "ledger")
    model = Reference()
    least, most = model.seed(held, FAR_FUTURE)
    seeded = ledger.seed(table, **OPTIONS, parts=5)
    without = sum(message.key is None for message in held)
    assert (seeded.rows, seeded.without_key, seeded.parts, seeded.resumed) == (len(held), without, 5, 0)
    assert least <= seeded.remembered <= most
    assert seeded.known == len(held) - without - most
    assert seeded.newest == max(message.time for message in held)
    before = files(tmp_path / "ledger")
    assert ledger.seed(table, **OPTIONS, parts=2).remembered == 0
    assert files(tmp_path / "ledger") == before, "a seed of what is known leaves no trace"
    with ledger.batch() as batch:
        found = verdicts(checked(frame_of(spark, later), ledger=batch))
    assert found == model.batch(later, FAR_FUTURE)


def test_an_interrupted_seed_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's job is cancelled when some parts are written, as if somebody had pressed Ctrl-C."""
    messages = [Message(f"k{at}", START + at, at, WINDOW) for at in range(500)]
    table = table_of(spark, tmp_path, messages)
    folder = tmp_path / "ledger"
    ledger = Ledger.open(folder)
    is_over = threading.Event()

    def cancel() -> None:
        while not is_over.is_set() and len(list(folder.glob("run-*"))) < 4:
            is_over.wait(0.001)
        spark.sparkContext.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(Py4JJavaError, match="SPARK_JOB_CANCELLED"):
            ledger.seed(table, **OPTIONS, parts=100)
    finally:
        is_over.set()
        canceller.join()
    assert ledger.summary().ids == 0
    seeded = ledger.seed(table, **OPTIONS, parts=100)
    assert 4 <= seeded.resumed < 100
    assert f"; {seeded.resumed} of 100 parts were done before" in str(seeded)
    assert seeded.rows < len(messages)
    assert seeded.remembered == ledger.summary().ids == len(messages)
    assert ledger.check().is_intact
    with ledger.batch() as batch:
        found = verdicts(checked(table, ledger=batch))
    assert all(verdict.is_duplicate for verdict in found.values())


def test_another_table_does_not_go_on_with_the_parts_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [Message("a", START, 1, WINDOW)])
    options = {**OPTIONS, "parts": 2}
    batch = Ledger.open(tmp_path / "ledger")
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: batch.seed(table, **options))
    write_batch(tmp_path / "table", 1, [Message("b", START, 2, WINDOW)])
    grown = spark.read.parquet(str(tmp_path / "table"))
    seeded = batch.seed(grown, **options)
    assert (seeded.resumed, seeded.remembered) == (0, 2)


def interrupted(seed: Callable[[], Seeded]) -> None:
    """Seed, and press Ctrl-C when all parts are written and the keys are about to join."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oncebus.ledger.seeding.SeedBatch.remembered", press_ctrl_c)
        seed()


def press_ctrl_c(_: object) -> int:
    raise KeyboardInterrupt


def test_all_parts_of_the_same_table_are_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [Message(f"k{at}", START, at, WINDOW) for at in range(40)])
    ledger = Ledger.open(tmp_path / "ledger")
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: ledger.seed(table, **OPTIONS, parts=2))
    seeded = ledger.seed(table, **OPTIONS, parts=2)
    assert (seeded.rows, seeded.remembered, seeded.resumed) == (0, 40, 2)
    assert ledger.summary().ids == 40


BAD: list[tuple[dict[str, Any], type[OncebusError], str]] = [
    ({"key": "nope"}, BadColumn, "was not seeded: There is no key column 'nope'. The columns are: key, time, seq"),
    ({"time": "sequence"}, BadColumn, "was not seeded: The time column 'sequence' has type bigint; it must be a time"),
    ({"key": "sequence"}, LedgerMismatch, r"is for the key \(key string\), not for \(sequence bigint\)"),
    ({"window": "2 hours"}, BadSeed, "remembers keys for 1 min, not for 2 h: of two windows the shorter counts"),
    ({"null_key": "error"}, BadSeed, "was not seeded: The column 'key' is null in 1 of . rows of this part"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_names_the_thing_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], error: type[OncebusError], message: str
) -> None:
    table = table_of(spark, tmp_path, [Message("a", START, 1, WINDOW), Message(None, START, 2, WINDOW)])
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.seed(table, **OPTIONS, parts=1)
    before = files(tmp_path / "ledger")
    with pytest.raises(error, match=message) as raised:
        ledger.seed(table, **{**OPTIONS, "window": "1 minute", "parts": 2, **change})
    assert f"Ledger '{tmp_path / 'ledger'}'" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert files(tmp_path / "ledger") == before


def test_a_table_that_is_over_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    options = {**OPTIONS, "window": "1 minute", "parts": 2}
    ledger.seed(table_of(spark, tmp_path / "new", [Message("a", START, 1, WINDOW)]), **options)
    before = files(tmp_path / "ledger")
    old = table_of(spark, tmp_path / "old", [Message("b", START - WINDOW, 1, WINDOW)])
    with pytest.raises(
        BadSeed, match=r"has seen times up to .*, and the newest 'time' of the table is .*remember no row"
    ):
        ledger.seed(old, **options)
    assert files(tmp_path / "ledger") == before
    assert ledger.seed(old, **options, lateness="1 second").remembered == 1


def test_the_ledger_of_a_stream(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """It is refused, unless the seed says where it joins. Then the stream goes on and sees its keys."""
    chance = random.Random(seed)
    first, second = history_of(2, size=20, seed=chance.randrange(100))
    stream = Stream(spark, tmp_path)
    stream.write([first])
    stream.run()
    ledger = Ledger.open(stream.ledger)
    fresh = [Message("fresh", max(m.time for m in first), 10_000, WINDOW)]
    table = table_of(spark, tmp_path, fresh)
    with pytest.raises(LedgerInUse, match=r"belongs to query .*Give the query's checkpoint"):
        ledger.seed(table, **OPTIONS, parts=2)
    assert ledger.seed(table, **OPTIONS, parts=2, checkpoint=stream.checkpoint).remembered == 1
    stream.write([first, [*second, fresh[0]._replace(sequence=10_001)]])
    stream.run()
    assert stream.found()[fresh[0]._replace(sequence=10_001)].is_duplicate
