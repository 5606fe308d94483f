"""The gaps between repeated rows, compared with a plain count of the same rows."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.detection.gaps import Gaps
from oncebus.spark import repeat_gaps
from oncebus.spark.columns import BadColumn
from tests.histories import SECOND, START
from tests.reference import Message
from tests.spark.streams import write_batch


def test_gaps_are_those_of_a_plain_count(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    messages = [
        Message(chance.choice([None, *(f"k{at}" for at in range(60))]), START + chance.randrange(10**10), at, 1)
        for at in range(300)
    ]
    write_batch(tmp_path / "in", 0, messages)
    found = repeat_gaps(spark.read.parquet(str(tmp_path / "in")), key="key", time="time")
    times: dict[str, list[int]] = {}
    for message in sorted(messages, key=lambda each: each.time):
        if message.key is not None:
            times.setdefault(message.key, []).append(message.time)
    plain = Gaps.of([time - own[0] for own in times.values() for time in own[1:]])
    pauses = Gaps.of([time - before for own in times.values() for before, time in pairwise(own)])
    assert (found.rows, found.without_key) == (300, sum(message.key is None for message in messages))
    assert (found.repeats, found.counts, found.largest) == (plain.repeats, plain.counts, plain.largest)
    assert found.quantiles == plain.quantiles
    assert found.pauses == pauses.quantiles


def test_a_table_without_repeats_and_an_empty_one(spark: SparkSession) -> None:
    rows = spark.range(3).select("id", F.timestamp_micros(F.lit(START)).alias("at"), F.lit(True).alias("is_duplicate"))
    assert str(repeat_gaps(rows, key="id", time="at")) == "no repeats in 3 rows"
    assert str(repeat_gaps(rows.limit(0), key="id", time="at")) == "no repeats in 0 rows"


def test_an_expression_and_a_column_of_times_without_a_zone(spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr("id", "timestamp_ntz '2026-01-31 00:00:00' + make_dt_interval(0, 0, id) AS at")
    assert repeat_gaps(rows, key=F.col("id") % 2, time="at").largest == 2 * 60 * SECOND


def test_bad_input(spark: SparkSession) -> None:
    rows = spark.range(2).selectExpr("id", "if(id = 0, null, timestamp_micros(1)) AS at")
    with pytest.raises(BadColumn, match="There is no key column 'nope'"):
        repeat_gaps(rows, key="nope", time="at")
    with pytest.raises(BadColumn, match="The column 'at' is null in 1 of 2 rows"):
        repeat_gaps(rows, key="id", time="at")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(BadColumn, match="takes a batch DataFrame, not a stream"):
        repeat_gaps(stream, key="value", time="timestamp")
