"""Keys, times, windows and sequences may be expressions and fields of structs; a window may be endless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncebus.ledger import Ledger
from oncebus.spark import columns, detect_duplicates
from oncebus.values.errors import OncebusError
from tests.histories import EVER, SECOND, START
from tests.spark.elsewhere import check_any_names, check_random_keys


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """Return rows whose bodies and inner ids repeat, although no column does."""
    rows = [(1, "x", "A", 0), (2, "y", "B", 5), (3, "x", "a", 9), (4, "x", "C", 10), (5, None, "b", 11)]
    made = spark.createDataFrame(rows, "n long, body string, id string, at long")
    return made.select(
        "n",
        "body",
        F.struct(F.col("id").alias("inner.id"), "id", (F.col("at") + START // SECOND).alias("at")).alias("head"),
    )


def repeated(checked: DataFrame) -> dict[int, int]:
    return {row["n"]: row["original_sequence"] for row in checked.filter("is_duplicate").collect()}


# Columns exist only once Spark runs.
Change = Callable[[], dict[str, Any]]


def options(**change: Any) -> dict[str, Any]:
    time = F.timestamp_seconds("head.at")
    return {"key": "body", "time": time, "window": "10 seconds", "sequence": "n", **change}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda: {"key": F.sha2("body", 256)}, {3: 1}),
        (lambda: {"key": F.col("body")}, {3: 1}),
        (lambda: {"key": F.lower("head.id")}, {3: 1, 5: 2}),
        (lambda: {"key": ["body", F.upper("head.id")]}, {3: 1}),
        (lambda: {"key": "head.id"}, {}),
        (lambda: {"key": "head.`inner.id`"}, {}),
        (lambda: {"window": F.expr("interval 11 seconds")}, {3: 1, 4: 1}),
        (lambda: {"window": F.lit(11_000_000).cast("bigint"), "sequence": -F.col("n")}, {3: -1, 4: -1}),
        (lambda: {"window": None}, {3: 1, 4: 1}),
        (lambda: {"window": "ever"}, {3: 1, 4: 1}),
        (lambda: {"window": "90 days"}, {3: 1, 4: 1}),
    ],
)
def test_expressions(frame: DataFrame, change: Change, wanted: dict[int, int]) -> None:
    checked = detect_duplicates(frame, **options(**change()))
    assert checked.columns == [*frame.columns, "is_duplicate", "original_time", "original_sequence"]
    assert repeated(checked) == wanted


def test_a_stream_by_content(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    frame.write.parquet(f"{tmp_path}/in")
    messages = spark.readStream.schema(frame.schema).parquet(f"{tmp_path}/in")
    by_content = options(key=F.sha2("body", 256), window=None)
    checked = detect_duplicates(messages, **by_content, ledger=tmp_path / "ledger")
    writer = checked.writeStream.format("parquet").option("path", f"{tmp_path}/out")
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert repeated(spark.read.parquet(f"{tmp_path}/out")) == {3: 1, 4: 1}
    # The text of the expression is the name of the key.
    with pytest.raises(OncebusError, match=r"is for the key \(sha2\(body, 256\) string\), not for \(body string\)"):
        detect_duplicates(messages, **options(window=None), ledger=tmp_path / "ledger")


def test_a_key_is_never_forgotten(frame: DataFrame, tmp_path: Path) -> None:
    for later, wanted in ((0, {3: 1, 4: 1}), (3_000_000_000, {1: 1, 2: 2, 3: 1, 4: 1})):
        with Ledger.open(tmp_path / "ledger").batch() as ledger:
            moved = frame.withColumn("head", F.col("head").withField("at", F.col("head.at") + later))
            assert repeated(detect_duplicates(moved, **options(window="ever"), ledger=ledger)) == wanted
    assert columns.EVER == EVER


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: {"key": F.col("nope")}, "The key column 'nope' cannot be computed: [UNRESOLVED_COLUMN"),
        (lambda: {"key": "head.nope"}, "The key column 'head.nope' cannot be computed: [FIELD_NOT_FOUND]"),
        (
            lambda: {"key": F.struct("n")},
            "The key column 'struct(n)' has type struct<n:bigint>; it must be text, binary,",
        ),
        (lambda: {"key": F.expr("uuid()")}, "The key column 'uuid("),
        (lambda: {"time": F.col("body")}, "The time column 'body' has type string; it must be a timestamp."),
        (lambda: {"key": 5}, "The key column is 5; it must be the name of a column, or a Column."),
        (lambda: {"window": F.col("body")}, "The window column 'body' has type string; it must be a day-time interval"),
        (lambda: {"window": "head.at.x"}, "The window column 'head.at.x' cannot be computed: "),
    ],
)
def test_bad_expressions(frame: DataFrame, change: Change, message: str) -> None:
    with pytest.raises(OncebusError) as raised:
        detect_duplicates(frame, **options(**change()))
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_bad_values_of_expressions(frame: DataFrame) -> None:
    nullable = F.when(F.col("n") > 1, F.timestamp_seconds("head.at"))
    with pytest.raises(PySparkException, match=r"The column 'CASE WHEN .*' is null in 1 of"):
        detect_duplicates(frame, **options(time=nullable)).collect()
    far = F.timestamp_micros(F.lit(2**60 + 1))
    with pytest.raises(PySparkException, match="must be within 36,000 years of 1970"):
        detect_duplicates(frame, **options(time=far, window=None)).collect()


def test_any_names_of_columns(spark: SparkSession) -> None:
    check_any_names(spark)


def test_random_keys(spark: SparkSession) -> None:
    check_random_keys(spark)


def test_null_keys_may_be_refused(spark: SparkSession) -> None:
    frame = spark.sql("select * from values (1, 'x'), (1, null) as t(n, `a.b`)").withColumn(
        "at", F.timestamp_micros("n")
    )
    named: dict[str, Any] = {"key": ["n", "a.b"], "time": "at", "window": "1 hour"}
    assert detect_duplicates(frame, **named).filter("is_duplicate").count() == 0
    with pytest.raises(PySparkException, match=r"The column 'a.b' is null in 1 of \d rows of this part"):
        detect_duplicates(frame, **named, null_key="error").count()
    assert detect_duplicates(frame.filter("`a.b` is not null"), **named, null_key="error").count() == 1


def test_the_lowest_sequence_number_names_an_original(spark: SparkSession, tmp_path: Path) -> None:
    lowest = -(2**63)
    frame = spark.createDataFrame([("k", lowest), ("k", 0)], "key string, n long").withColumn(
        "at", F.timestamp_micros(F.lit(1))
    )
    named: dict[str, Any] = {"key": "key", "time": "at", "window": "1 hour", "sequence": "n"}
    assert repeated(detect_duplicates(frame, **named)) == {0: lowest}
    for wanted in ({0: lowest}, {lowest: lowest, 0: lowest}):
        with Ledger.open(tmp_path / "with").batch() as ledger:
            assert repeated(detect_duplicates(frame, **named, ledger=ledger)) == wanted
    # The original of this row has no number.
    with Ledger.open(tmp_path / "without").batch() as ledger:
        assert detect_duplicates(frame, **{**named, "sequence": None}, ledger=ledger).count() == 2
    with Ledger.open(tmp_path / "without").batch() as ledger:
        assert repeated(detect_duplicates(frame, **named, ledger=ledger)) == {0: None, lowest: None}
