"""What users ask a ledger: whether it remembers a key, and how large it is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from oncebus.ledger import BadKey, LedgerMismatch, LedgerSummary
from oncebus.spark import Ledger, detect_duplicates


def test_a_ledger_tells_whether_it_remembers_a_key(spark: SparkSession, tmp_path: Path) -> None:
    """Values of every type have the digest that the tasks computed."""
    frame = spark.sql(
        """
        select * from values
          (1Y, 2S, 3, 4L, 'ödeme', x'00ff', 1.50BD, date'2024-01-01', timestamp'2024-01-01 00:00:00Z',
           timestamp_ntz'2024-01-01 00:00:00', true, timestamp'2024-01-01 00:00:00Z')
          as t(a, b, c, d, e, f, g, h, i, j, k, at)
        """
    )
    ledger = Ledger.open(tmp_path / "ledger")
    with pytest.raises(LedgerMismatch, match="There is no ledger at"):
        ledger.contains("x")
    keys = list("abcdefghijk")
    with ledger.batch() as batch:
        detect_duplicates(frame, key=keys, time="at", window="1 hour", ledger=batch).collect()
    moment = datetime(2024, 1, 1)
    values: list[Any] = [1, 2, 3, 4, "ödeme", b"\x00\xff", Decimal("1.50"), date(2024, 1, 1)]
    values += [moment.replace(tzinfo=UTC), moment, True]
    found = ledger.contains(*values)
    assert found is not None
    assert (found.time, found.until - found.time) == (1_704_067_200_000_000, 3_600_000_000)
    assert str(found) == "new at 2024-01-01T00:00:00Z, until the ledger has seen 2024-01-01T01:00:00Z"
    for at, other in enumerate([2, 3, 4, 5, "x", b"", Decimal("1.51"), date(2024, 1, 2), moment, moment.max, False]):
        changed = [*values]
        changed[at] = other if at != 8 else moment.replace(tzinfo=UTC) + timedelta(microseconds=1)
        assert ledger.contains(*changed) is None
    with pytest.raises(BadKey, match="has 1 values; the key columns are"):
        ledger.contains("x")
    with pytest.raises(BadKey, match="A value of the key column 'a' is no tinyint"):
        ledger.contains("x", *values[1:])
    # One hour later the key is forgotten.
    with ledger.batch() as batch:
        later = frame.withColumns({"a": F.lit(9).cast("tinyint"), "at": F.expr("at + interval 1 hour")})
        detect_duplicates(later, key=keys, time="at", window="1 hour", ledger=batch).collect()
    assert ledger.contains(*values) is None
    assert ledger.contains(9, *values[1:])


def test_a_ledger_of_several_batches_is_intact(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select 'a' id, timestamp'2024-01-01 00:00:00Z' at")
    ledger = Ledger.open(tmp_path / "ledger")
    for day in range(3):
        with ledger.batch() as batch:
            later = frame.withColumn("at", F.expr(f"at + interval {day} days"))
            detect_duplicates(later, key="id", time="at", window="365 days", ledger=batch).collect()
    assert ledger.check().problems == []
    assert ledger.contains("a")


def test_a_summary_in_readable_units() -> None:
    horizon = 1_769_848_200_000_000
    assert str(LedgerSummary(1_200_000, 39_600_000, 12, 3, horizon)) == (
        "1,200,000 ids in 12 runs, 39.6 MB, seen up to 2026-01-31T08:30:00Z"
    )
    assert str(LedgerSummary(1, 300, 1, 1, None)) == "1 id in 1 run, 0.0 MB"
