"""Bad input gives one clear error that names the thing and the value, and leaves the ledger usable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncebus.ledger import Ledger as Files
from oncebus.ledger import Owner, Writer
from oncebus.spark import Ledger, detect_duplicates
from oncebus.spark.workers import WorkersDiffer
from oncebus.values.errors import OncebusError
from tests.histories import SECOND, START
from tests.reference import Message
from tests.spark.streams import SCHEMA, Stream, expected
from tests.spark.test_streaming import history_of


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    row = ("k", 1, START, 1, 0.5, None)
    frame = spark.createDataFrame([row], "id string, n long, time long, window long, ratio double, gap long")
    return frame.withColumn("time", F.timestamp_micros("time"))


COLUMNS = "The columns are: id, n, time, window, ratio, gap."
GOOD: dict[str, Any] = {"key": "id", "time": "time", "window": "10 minutes"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "nope"}, f"There is no key column 'nope'. {COLUMNS}"),
        ({"key": []}, "The key must name at least one column."),
        ({"key": ["id", "ratio"]}, "The key column 'ratio' has type double; it must be text, binary,"),
        ({"time": "when"}, f"There is no time column 'when'. {COLUMNS}"),
        ({"time": "n"}, "The time column 'n' has type bigint; it must be a timestamp."),
        ({"sequence": "id"}, "The sequence column 'id' has type string; it must be a whole number."),
        ({"window": "id"}, "The window column 'id' has type string; it must be a day-time interval or a bigint"),
        ({"window": "0 seconds"}, "Window '0 seconds' must be longer than zero."),
        ({"window": "PT-5M"}, "Window 'PT-5M' is not a duration. Write it like '10 minutes' or 'PT10M'."),
        ({"window": "-5 minutes"}, "Window '-5 minutes' must be longer than zero."),
        ({"window": timedelta(0)}, "Window datetime.timedelta(0) must be longer than zero."),
        (
            {"window": "soon"},
            f"Window 'soon' is neither a duration, like '10 minutes' or 'PT10M', nor a column. {COLUMNS}",
        ),
        ({"window": "10 parsecs"}, "Window '10 parsecs' is not a duration."),
        ({"window": "1 month"}, "Window '1 month' has months, which have no fixed length."),
        ({"window": "P1Y"}, "Window 'P1Y' has years or months, which have no fixed length."),
        ({"window": 600}, "Window 600 is not a duration."),
        ({"lateness": "-1 second"}, "Lateness '-1 second' must be zero or longer."),
        ({"null_key": "old"}, "null_key is 'old'; it must be 'new' or 'error'."),
        ({"parts": 0}, "The number of parts is 0; it must be from 1 to 256."),
        (
            {"ledger": "somewhere"},
            "A batch DataFrame takes an open ledger batch, not a path. Write: with Ledger.open('somewhere').batch()",
        ),
    ],
)
def test_bad_arguments(frame: DataFrame, change: dict[str, Any], message: str) -> None:
    with pytest.raises(OncebusError) as raised:
        detect_duplicates(frame, **{**GOOD, **change})
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_ledger_in_place_of_its_batch(frame: DataFrame, tmp_path: Path) -> None:
    ledger: Any = Ledger.open(tmp_path)
    with pytest.raises(
        OncebusError,
        match=r"takes an open ledger batch, not a path. Write: with Ledger.open\('.*'\).batch\(\) as ledger",
    ):
        detect_duplicates(frame, **GOOD, ledger=ledger)


def test_a_column_that_exists_already(frame: DataFrame) -> None:
    for name in ("is_duplicate", "Is_Duplicate", "ORIGINAL_TIME", "__oncebus_late"):
        with pytest.raises(OncebusError, match=f"already has a column '{name}', and detection adds '{name.lower()}'"):
            detect_duplicates(frame.withColumn(name, F.lit(1)), **GOOD)
    frame.sparkSession.conf.set("spark.sql.caseSensitive", True)
    try:
        result = detect_duplicates(frame.withColumn("Is_Duplicate", F.lit(1)), **GOOD)
        assert result.filter("not is_duplicate").count() == 1
    finally:
        frame.sparkSession.conf.unset("spark.sql.caseSensitive")


def test_workers_with_a_missing_python(frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "python"
    monkeypatch.setattr(frame.sparkSession.sparkContext, "pythonExec", str(missing))
    with pytest.raises(WorkersDiffer, match=f"Spark's workers run the Python '{missing}', which does not exist"):
        detect_duplicates(frame, **GOOD)


def test_a_key_with_a_collation(frame: DataFrame) -> None:
    collated = frame.withColumn("id", F.collate("id", "utf8_lcase"))
    with pytest.raises(
        OncebusError, match="The key column 'id' has type string collate UTF8_LCASE, but keys are compared"
    ):
        detect_duplicates(collated, **GOOD)


BAD_VALUES: list[tuple[str, str, dict[str, Any], str]] = [
    ("time", "timestamp(null)", {}, "BadColumn: The column 'time' is null in 1 of 1 rows of this part"),
    ("window", "0L", {"window": "window"}, "BadColumn: The window column 'window' holds 0 microseconds"),
]
"""Two of those in `test_task`: Spark repeats a task that fails, which takes seconds."""


def test_bad_values(frame: DataFrame, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    for column, value, change, message in BAD_VALUES:
        bad = frame.withColumn(column, F.expr(value))
        with pytest.raises(PySparkException, match=message), ledger.batch() as batch:
            detect_duplicates(bad, **{**GOOD, **change}, ledger=batch).collect()
        assert ledger.summary().ids == 0
    with ledger.batch() as batch:
        assert detect_duplicates(frame, **GOOD, ledger=batch).filter("is_duplicate").count() == 0


def test_a_stream_needs_a_ledger(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    messages = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    with pytest.raises(OncebusError, match="A streaming DataFrame needs a ledger"):
        detect_duplicates(messages, key="key", time="time", window="window")


def test_a_ledger_for_another_key_or_format(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    history = history_of(2)
    stream.write(history[:1])
    stream.run()
    messages = spark.readStream.schema(SCHEMA).parquet(str(stream.source))
    with pytest.raises(OncebusError, match=r"is for the key \(key string\), not for \(sequence bigint\)"):
        detect_duplicates(messages, key="sequence", time="time", window="window", ledger=stream.ledger)

    description = stream.ledger / "ledger.json"
    good = description.read_text()
    for text, message in [
        (json.dumps({**json.loads(good), "format": 9}), "has format 9; this version of Oncebus writes format 1"),
        ("{", "has an unreadable 'ledger.json'"),
    ]:
        description.write_text(text)
        with pytest.raises(OncebusError, match=message):
            stream.checked()
    description.write_text(good)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.csv").touch()
    with pytest.raises(OncebusError, match=r"is not a ledger: it holds 'data\.csv' but no 'ledger\.json'"):
        Stream(spark, tmp_path, {"ledger": tmp_path / "other"}).checked()
    with pytest.raises(OncebusError, match="Ledger location 'nope://x' has the unknown scheme 'nope'"):
        Stream(spark, tmp_path, {"ledger": "nope://x"}).checked()
    stream.write(history[1:], first=1)
    stream.run()
    assert stream.found() == expected(history)


def elsewhere(ledger: Files) -> None:
    ledger.describe_or_check(["id string"], has_secret=True)
    ledger.join(Writer("aa", "some query", Owner("another machine", 1, "0")), 0)


def of_a_process(ledger: Files) -> None:
    ledger.describe_or_check(["id string"], has_secret=True)
    # The parent of this process is alive. It has not written anything, but nobody else can know.
    parent = os.getppid()
    started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    ledger.join(Writer("aa", "some query", Owner(Owner.this_process().place, parent, started)), 0)


def of_a_broker(ledger: Files) -> None:
    ledger.describe_or_check(["entity and detection key"])


def without_a_description(ledger: Files) -> None:
    elsewhere(ledger)
    Path(ledger.location, "ledger.json").unlink()


def foreign(ledger: Files) -> None:
    Path(ledger.location).mkdir()
    Path(ledger.location, "data.csv").touch()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            elsewhere,
            r"was written \d+ s ago by query some query on another machine\. Stop that query, and wait 60 s\.$",
        ),
        (of_a_process, r"is being written by query some query of process \d+\. Stop that query first, or "),
        (of_a_broker, r"is for the key \(entity and detection key\), not for \(id string\)\. Use the same key columns"),
        (without_a_description, r"is not a ledger: it holds 'generation-000001\.json' but no 'ledger\.json'"),
        (foreign, r"is not a ledger: it holds 'data\.csv' but no 'ledger\.json'\. Give another folder\.$"),
    ],
)
def test_a_ledger_that_others_use(
    frame: DataFrame, tmp_path: Path, made: Callable[[Files], None], message: str
) -> None:
    """The error is one line, for a batch and for a stream, and the folder stays as it was."""
    made(Files.open(tmp_path / "ledger"))
    ledger = Ledger.open(tmp_path / "ledger")
    before = sorted(os.listdir(tmp_path / "ledger"))
    with pytest.raises(OncebusError, match=message) as raised, ledger.batch(take_over=True) as batch:
        detect_duplicates(frame, **GOOD, ledger=batch)
    assert "\n" not in str(raised.value)
    if made is not elsewhere:
        # Whether a query on another machine has ended is known only to the tasks, a minute later.
        (tmp_path / "in").mkdir()
        messages = frame.sparkSession.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
        with pytest.raises(OncebusError, match=message) as raised:
            detect_duplicates(messages, **GOOD, ledger=tmp_path / "ledger")
        assert "\n" not in str(raised.value)
    assert sorted(os.listdir(tmp_path / "ledger")) == before


def test_a_batch_beside_another_query(tmp_path: Path) -> None:
    elsewhere(Files.open(tmp_path / "ledger"))
    ledger = Ledger.open(tmp_path / "ledger")
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(OncebusError, match="is not the checkpoint of a streaming query: it has no readable 'metadata'"):
        ledger.batch(checkpoint=tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"another query"}')
    with pytest.raises(
        OncebusError,
        match=r"was last written by query some query, but checkpoint '.*' belongs to query another query\.$",
    ):
        ledger.batch(checkpoint=tmp_path / "checkpoint")
    assert ledger.summary().ids == 0


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "source").mkdir()
    with pytest.raises(OncebusError, match=r"Ledger folder '.*file/ledger' cannot be (read|written): Not a directory"):
        Stream(spark, tmp_path, {"ledger": tmp_path / "file" / "ledger"}).checked()


def test_a_damaged_run(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path)
    same = [
        [Message(f"k{at}", START + SECOND * number, number * 1000 + at, 3600 * SECOND) for at in range(200)]
        for number in range(2)
    ]
    stream.write(same[:1])
    stream.run()
    run = max(stream.ledger.glob("*.run"), key=lambda path: path.stat().st_size)
    good = run.read_bytes()
    stream.write(same[1:], first=1)
    for number, bad in enumerate(
        [
            good[:-1],
            good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
            b"",
            bytes([*good[:9], good[9] ^ 1, *good[10:]]),
        ]
    ):
        run.write_bytes(bad)
        os.utime(run, ns=(0, 12345 + number))
        with pytest.raises(
            PySparkException, match=rf"CorruptRun: Ledger run '{run}' (is truncated|is corrupt|holds|has a damaged)"
        ):
            stream.run()
    run.write_bytes(good)
    stream.run()
    assert stream.found() == expected(same)
