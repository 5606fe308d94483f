"""Batch DataFrames: without a ledger, and inside a block that continues a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncebus.detection.hashing import digests_of_rows
from oncebus.ledger import LedgerInUse
from oncebus.spark import Ledger, detect_duplicates
from oncebus.spark.operator import BadCall
from tests.histories import SECOND, START, Batch, histories
from tests.reference import Message, Reference, Verdict
from tests.spark.streams import FAR_FUTURE, expected, spark_examples, verdicts
from tests.spark.test_streaming import history_of


def frame_of(spark: SparkSession, messages: list[Message]) -> DataFrame:
    rows = [tuple(message)[:4] for message in messages]
    frame = spark.createDataFrame(rows, "key string, time long, sequence long, window long")
    return frame.withColumn("time", F.timestamp_micros("time"))


def checked(frame: DataFrame, **options: object) -> DataFrame:
    arguments = {"key": "key", "time": "time", "window": "window", "sequence": "sequence", **options}
    return detect_duplicates(frame, **arguments)  # type: ignore[arg-type]


@given(drawn=st.lists(histories(most_batches=1, sizes=10, forgets=False), min_size=40, max_size=40))
@spark_examples(3)
def test_many_histories_alone(spark: SparkSession, drawn: list[list[Batch]]) -> None:
    messages, wanted = [], dict[Message, Verdict]()
    for number, [batch] in enumerate(drawn):
        own = [
            m._replace(key=m.key and f"{number} {m.key}", sequence=m.sequence + 1000 * number) for m in batch.messages
        ]
        messages += own
        wanted |= Reference().batch(own, FAR_FUTURE)
    assert verdicts(checked(frame_of(spark, messages))) == wanted


def test_a_sequence_of_batches_continues_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    history = history_of(6)
    found: dict[Message, Verdict] = {}
    for at, messages in enumerate(history):
        with Ledger.open(tmp_path / "ledger").batch() as ledger:
            result = checked(frame_of(spark, messages), ledger=ledger, parts=1 + at % 3)
            first = verdicts(result)
            assert verdicts(result.union(result.limit(0))) == first, "a second evaluation differs"
            found |= first
    assert found == expected(history)
    assert verdicts(result) == first, "an evaluation after the block differs"


def test_a_block_that_fails_leaves_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    messages = history_of(1)[0]
    ledger = Ledger.open(tmp_path / "ledger")

    def fail() -> None:
        with ledger.batch() as batch:
            checked(frame_of(spark, messages), ledger=batch).collect()
            raise RuntimeError("the output failed")

    with pytest.raises(RuntimeError, match="the output failed"):
        fail()
    assert ledger.summary().ids == 0
    with ledger.batch() as batch:
        assert verdicts(checked(frame_of(spark, messages), ledger=batch)) == expected([messages])


def test_of_two_open_batches_only_one_joins(spark: SparkSession, tmp_path: Path) -> None:
    messages = history_of(1)[0]
    ledger = Ledger.open(tmp_path / "ledger")
    slow, fast = ledger.batch(), ledger.batch()
    checked(frame_of(spark, messages), ledger=slow).collect()
    checked(frame_of(spark, messages), ledger=fast).collect()
    fast.commit()
    with pytest.raises(LedgerInUse, match="Nothing of the batch was recorded; run it again"):
        slow.commit()
    with ledger.batch() as batch:
        again = verdicts(checked(frame_of(spark, messages), ledger=batch))
    assert again == {**expected([messages, messages])}


def test_a_limit_or_filter_does_not_change_a_verdict(spark: SparkSession) -> None:
    messages = [Message("same", START + at, at, SECOND) for at in range(50)]
    result = checked(frame_of(spark, messages))
    assert verdicts(result.filter("sequence = 49")) == {messages[49]: Verdict(True, START, 0)}
    assert all(verdict.is_duplicate for message, verdict in verdicts(result.limit(20)).items() if message.sequence)


def test_rows_that_tie_are_judged_alike_in_any_order(spark: SparkSession) -> None:
    rows = [("k", START, "a", None), ("k", START, None, "a"), ("k", START, "b", None)]
    winners = set()
    for order in permutations(rows):
        frame = spark.createDataFrame(order, "key string, time long, one string, two string").coalesce(1)
        frame = frame.withColumn("time", F.timestamp_micros("time"))
        result = detect_duplicates(frame, key="key", time="time", window=timedelta(seconds=1), parts=1)
        winners.add(tuple((row["one"], row["two"]) for row in result.filter("not is_duplicate").collect()))
    assert len(winners) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int(null)", "1"),
        ("struct(int(null) as x, 1 as y)", "struct(1 as x, int(null) as y)"),
        ("array(1, null)", "array(null, 1)"),
        ("array(array(1, 2), array())", "array(array(1), array(2))"),
        ("map('a', int(null), 'b', 1)", "map('a', 1, 'b', int(null))"),
        ("array(struct(timestamp_micros(1) as x))", "array(struct(timestamp_micros(2) as x))"),
        ("'a' collate utf8_lcase", "'A' collate utf8_lcase"),
        ("double('0.0')", "double('-0.0')"),
        ("array(float('0.0'))", "array(float('-0.0'))"),
        ("parse_json('null')", "parse_json(null)"),
    ],
)
def test_rows_that_differ_in_anything_are_judged_alike_in_any_order(spark: SparkSession, left: str, right: str) -> None:
    """The rows differ only in a null, in the end of an array, or in something that a collation or a hash ignores."""
    rows = spark.sql(
        f"""
        select 'k' as key, timestamp_micros({START}) as time, {left} as one, {right} as two
        union all select 'k', timestamp_micros({START}), {right}, {left}
        """
    )

    def ties(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([pa.array(digests_of_rows(pa.Table.from_batches([batch])))], ["tie"])

    first, second = rows.mapInArrow(ties, "tie long").collect()
    assert first["tie"] != second["tie"]


def test_everything_a_column_may_be(spark: SparkSession) -> None:
    frame = spark.sql(
        """
        select *, map('a', 1) as m, array(map('b', 2)) as ms, struct(1 as x) as s, interval 5 minutes as period
        from values
          (1, 'a', x'00ff', 1.50BD, date'2024-01-01', timestamp_ntz'2024-01-01 00:00:00', true, 1),
          (1, 'a', x'00ff', 1.50BD, date'2024-01-01', timestamp_ntz'2024-01-01 00:04:59.999999', true, 2),
          (1, 'a', x'00ff', 1.50BD, date'2024-01-01', timestamp_ntz'2024-01-01 00:05:00', true, 3),
          (11, '', x'00ff', 1.50BD, date'2024-01-01', timestamp_ntz'2024-01-01 00:05:00', true, 4)
          as t(n, text, raw, price, day, at, flag, sequence)
        """
    )
    keys = ["n", "text", "raw", "price", "day", "flag"]
    result = detect_duplicates(frame, key=keys, time="at", window="period", sequence="sequence")
    assert result.columns == [*frame.columns, "is_duplicate", "original_time", "original_sequence"]
    assert result.schema["original_time"].dataType.simpleString() == "timestamp_ntz"
    found = {row["sequence"]: (row["is_duplicate"], row["original_sequence"]) for row in result.collect()}
    assert found == {1: (False, None), 2: (True, 1), 3: (False, None), 4: (False, None)}


def test_the_columns_of_a_key_do_not_run_into_each_other(spark: SparkSession) -> None:
    rows = [("a", "bc"), ("ab", "c"), ("1:a", ""), ("1", ":a"), ("", "abc"), (None, "x"), (None, "x")]
    frame = spark.createDataFrame(rows, "one string, two string").withColumn("time", F.timestamp_seconds(F.lit(1)))
    result = detect_duplicates(frame, key=["one", "two"], time="time", window="1 second")
    assert result.filter("is_duplicate").count() == 0


def test_a_batch_is_used_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = frame_of(spark, history_of(1)[0])
    with Ledger.open(tmp_path / "ledger").batch() as ledger:
        checked(frame, ledger=ledger)
        with pytest.raises(BadCall, match="Open a new batch for each"):
            checked(frame, ledger=ledger)


def test_a_key_of_any_type_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """`Ledger.forget` computes the same digests as Spark's tasks."""
    values = (
        "select 'ödeme' as text, x'00ff' as bytes, true as flag, 1y as tiny, 2s as small, 3 as whole, 4L as big, "
        "1.50bd as exact, date'2026-01-31' as day, timestamp'2026-01-31 08:00:00Z' as at, "
        "timestamp_ntz'2026-01-31 08:00:00' as plain"
    )
    frame = spark.sql(values)
    keys = frame.columns
    frame = frame.withColumn("time", F.timestamp_micros(F.lit(START)))
    ledger = Ledger.open(tmp_path / "ledger")

    def is_duplicate() -> bool:
        with ledger.batch() as batch:
            result = detect_duplicates(frame, key=keys, time="time", window="10 minutes", ledger=batch, parts=2)
            return bool(result.collect()[0]["is_duplicate"])

    morning = datetime(2026, 1, 31, 8)
    key = ("ödeme", b"\0\xff", True, 1, 2, 3, 4, Decimal("1.50"), morning.date(), morning.replace(tzinfo=UTC), morning)
    assert not is_duplicate()
    assert is_duplicate()
    assert ledger.forget([(*key[:-1], morning + timedelta(seconds=1))]) == 0
    assert ledger.forget([key]) == 1
    assert not is_duplicate()
    assert is_duplicate()
