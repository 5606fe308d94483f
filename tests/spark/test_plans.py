"""Whatever plan a result is used in, Python judges all rows of a part, once, and the verdicts are the same.

Python gets only some columns, as a UDF does, and Spark moves, merges and drops UDFs where it can.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from oncebus.spark import Ledger, detect_duplicates, plan
from oncebus.spark.workers import InWorker, in_worker
from tests.histories import START
from tests.spark.streams import SCHEMA

PARTS = 3
OPTIONS: dict[str, Any] = {"key": "id", "time": "at", "window": timedelta(seconds=1), "sequence": "number"}

Change = Callable[[DataFrame], DataFrame]


@pytest.fixture(params=["adaptive", "compiled"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """Return sessions that plan in different ways."""
    own = spark.newSession()
    compiled = request.param == "compiled"
    own.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    own.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiled else "NO_CODEGEN")
    own.conf.set("spark.sql.adaptive.enabled", str(not compiled).lower())
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    return own


@pytest.fixture
def evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Return a function that returns how many rows each evaluation got since the last call."""
    log = tmp_path / "evaluations"
    log.touch()

    def noting(work: InWorker) -> InWorker:
        def note(batches: Iterator[Any]) -> Iterator[Any]:
            received = list(batches)
            with open(log, "a") as file:
                file.write(f"{sum(len(batch[0]) for batch in received)}\n")
            yield from work(iter(received))

        return in_worker(note)

    def since() -> list[int]:
        found = [int(line) for line in log.read_text().splitlines()]
        log.write_text("")
        return sorted(size for size in found if size)

    monkeypatch.setattr(plan, "in_worker", noting)
    return since


def messages(session: SparkSession) -> DataFrame:
    """Return rows of which every third repeats the one before it."""
    rows = session.range(0, 90, 1, 2).selectExpr(
        "concat('k', id - int(id % 3 = 2)) AS id",
        f"timestamp_micros({START} + id) AS at",
        "id AS number",
        "concat('body ', id) AS body",
        "if(id % 2 = 0, null, id) AS other",
        "array(id) AS list",
    )
    # A relation of plain rows: nothing that Spark does to the plan below matters here.
    return session.createDataFrame(rows.collect(), rows.schema)


PLANS: dict[str, tuple[int, Change]] = {
    "all": (1, lambda checked: checked),
    "count": (1, lambda checked: checked.groupBy().count()),
    "literals": (1, lambda checked: checked.select(F.lit(1))),
    "no verdicts": (1, lambda checked: checked.drop("is_duplicate", "original_time", "original_sequence")),
    "one column": (1, lambda checked: checked.select("body")),
    "key": (1, lambda checked: checked.filter("id = 'k1'")),
    "key, without verdicts": (1, lambda checked: checked.filter("id = 'k1'").select("number")),
    "verdict": (1, lambda checked: checked.filter("not is_duplicate")),
    "verdict is never null": (1, lambda checked: checked.filter("is_duplicate is not null").select("id")),
    "both verdicts": (1, lambda checked: checked.filter("is_duplicate and original_sequence > 20").select("number")),
    "either": (1, lambda checked: checked.filter("other > 30 or original_time is null")),
    "filters": (1, lambda checked: checked.filter("number > 5").filter("is_duplicate").filter("other is null")),
    # Spark samples what it sorts, in an evaluation of its own.
    "sorted": (2, lambda checked: checked.orderBy("number").select("number")),
    "top": (1, lambda checked: checked.orderBy(F.desc("number")).limit(4)),
    "grouped": (1, lambda checked: checked.groupBy("id").agg(F.count("*"), F.max("is_duplicate"))),
    "grouped by verdict": (1, lambda checked: checked.groupBy("is_duplicate").count()),
    "distinct": (1, lambda checked: checked.select("id").distinct()),
    "one of each key": (1, lambda checked: checked.dropDuplicates(["id"]).select("id")),
    "window": (
        1,
        lambda checked: (
            checked.withColumn("rank", F.row_number().over(Window.partitionBy("id").orderBy("number")))
            .filter("rank = 1")
            .select("number")
        ),
    ),
    "exploded": (1, lambda checked: checked.select("number", F.explode("list"))),
    "spread again": (1, lambda checked: checked.repartition(2, "id").select("number")),
    "in one task": (1, lambda checked: checked.coalesce(1).filter("is_duplicate")),
    "in a UDF": (1, lambda checked: checked.select(F.udf(lambda flag: f"{flag}")("is_duplicate").alias("text"))),
    "in a filter by a UDF": (1, lambda checked: checked.filter(F.udf(lambda n: n > 40, "boolean")("number"))),
    "joined with few": (1, lambda checked: checked.join(few(checked), "id").select("number")),
    "semi-joined": (1, lambda checked: checked.join(F.broadcast(few(checked)), "id", "left_semi").select("number")),
    "anti-joined": (1, lambda checked: checked.join(few(checked), "id", "left_anti").filter("is_duplicate")),
    "among few": (1, lambda checked: few(checked).join(checked, "id", "left").select("number", "is_duplicate")),
    "as a set": (1, lambda checked: checked.select("id").exceptAll(few(checked))),
    "with itself": (2, lambda checked: checked.union(checked).select("number", "is_duplicate")),
    "halves": (2, lambda checked: checked.filter("is_duplicate").unionByName(checked.filter("not is_duplicate"))),
    "joined with itself": (
        2,
        lambda checked: (
            checked.alias("a")
            .join(checked.filter("not is_duplicate").alias("b"), F.expr("a.original_sequence = b.number"))
            .selectExpr("a.number", "b.number AS original")
        ),
    ),
    "in a subquery": (
        2,
        lambda checked: checked.filter(F.col("number") > checked.agg(F.min("original_sequence")).scalar() + 50),
    ),
}


def few(checked: DataFrame) -> DataFrame:
    rows: list[tuple[str]] = [("k1",), ("k4",), ("k40",)]
    return checked.sparkSession.createDataFrame(rows, "id string")


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def test_a_plan_evaluates_every_part_once(
    session: SparkSession, evaluations: Callable[[], list[int]], tmp_path: Path
) -> None:
    frame = messages(session)
    plain = detect_duplicates(frame, **OPTIONS)
    known = session.createDataFrame(plain.collect(), plain.schema)
    evaluations()
    sizes: list[int] = []
    for name, (times, change) in PLANS.items():
        ledger = Ledger.open(tmp_path / name)
        with ledger.batch() as batch:
            checked = detect_duplicates(frame, **OPTIONS, ledger=batch, parts=PARTS)
            found = rows_of(change(checked))
        seen = evaluations()
        sizes = sizes or seen
        assert sum(sizes) == 90
        assert len(sizes) == PARTS, "the keys do not fill the parts"
        # Spark may evaluate a plan that occurs twice only once.
        assert seen in [sorted(sizes * time) for time in range(1, times + 1)], name
        assert found == rows_of(change(known)), name
        assert ledger.summary().ids == 60, name


FEW_ROWS: dict[str, Change] = {
    "limit": lambda checked: checked.limit(4),
    "limit, without verdicts": lambda checked: checked.limit(4).select("body"),
    "limited duplicates": lambda checked: checked.filter("is_duplicate").limit(1),
    "new rows of few": lambda checked: checked.limit(60).filter("not is_duplicate"),
    "offset": lambda checked: checked.offset(2).limit(3).select(F.lit(1)),
    "sample": lambda checked: checked.sample(fraction=0.5, seed=1).select("id"),
    "at random": lambda checked: checked.where(F.rand(1) < 0.5).select("id"),
    "contradiction": lambda checked: checked.where("is_duplicate and not is_duplicate"),
    "nothing": lambda checked: checked.limit(0),
}


def test_a_plan_that_needs_few_rows_evaluates_whole_parts(
    session: SparkSession, evaluations: Callable[[], list[int]], tmp_path: Path
) -> None:
    with Ledger.open(tmp_path / "ledger").batch() as batch:
        checked = detect_duplicates(messages(session), **OPTIONS, ledger=batch, parts=PARTS)
    verdicts = {row["number"]: row for row in checked.collect()}
    sizes = evaluations()
    assert sum(sizes) == 90
    for name, change in FEW_ROWS.items():
        for row in change(checked).collect():
            assert "number" not in row or verdicts[row["number"]] == row, name
        # Spark may begin with one part, and look into others later. It evaluates none twice.
        assert not Counter(evaluations()) - Counter(sizes), name


def test_a_cached_result_is_evaluated_once(session: SparkSession, evaluations: Callable[[], list[int]]) -> None:
    checked = detect_duplicates(messages(session), **OPTIONS).persist()
    try:
        for result in (checked.filter("id = 'k1'"), checked, checked.limit(3)):
            result.collect()
        assert sum(evaluations()) == 90
    finally:
        checked.unpersist(blocking=True)


def test_python_gets_only_the_columns_that_detection_needs(session: SparkSession) -> None:
    """The body crosses the shuffle only if it is used."""
    frame = messages(session).withColumn("tag", F.struct(F.lit(1).alias("x"), F.col("other").alias("y")))

    def python_part(checked: DataFrame) -> str:
        java: Any = checked._jdf
        text = java.queryExecution().optimizedPlan().toString()
        assert text.count("ArrowEvalPython") == 1
        assert "MapInArrow" not in text
        return str(text[text.index("ArrowEvalPython") :])

    # Key, time and number, a hash of all else that Spark can hash, and the list.
    text = python_part(detect_duplicates(frame, **OPTIONS))
    assert re.findall(r"(\w+)#\d+", text.splitlines()[0]) == ["c0", "c1", "c2", "__oncebus_tie", "c5", "pythonUDF0"]
    text = python_part(detect_duplicates(frame.drop("list"), **OPTIONS).select("id", "is_duplicate"))
    _, shuffle, below, *_ = text.splitlines()
    assert "RepartitionByExpression" in shuffle
    assert re.search(r"Project \[.*, xxhash64\(body", below)
    assert " AS c3" not in below, "the body crosses the shuffle"


def test_a_stream_in_several_actions(
    session: SparkSession, evaluations: Callable[[], list[int]], tmp_path: Path
) -> None:
    """Each action of foreachBatch evaluates its parts whole, and sees the same ledger."""
    rows = [(f"k{at % 30}", START + at, at, 10**6) for at in range(60)]
    frame = session.createDataFrame(rows, "key string, time long, sequence long, window long")
    for number in range(2):
        frame.withColumn("time", F.timestamp_micros("time")).coalesce(1).write.parquet(f"{tmp_path}/in/{number}")
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("recursiveFileLookup", True)
    checked = detect_duplicates(
        source.parquet(f"{tmp_path}/in"), key="key", time="time", window="window", ledger=tmp_path / "ledger", parts=2
    )
    counted: list[list[int]] = []

    def each(batch: DataFrame, number: int) -> None:
        counted.append(
            [
                batch.filter("sequence < 5").count(),
                batch.select("key").filter("key = 'k1'").count(),
                len(batch.limit(1).collect()),
                batch.filter("is_duplicate").count(),
                batch.drop("is_duplicate", "original_time").count(),
            ]
        )

    query = checked.writeStream.foreachBatch(each).option("checkpointLocation", f"{tmp_path}/checkpoint")
    assert query.trigger(availableNow=True).start().awaitTermination(300)
    assert counted == [[5, 2, 1, 30, 60], [5, 2, 1, 60, 60]]
    seen = Counter(evaluations())
    assert len(seen) <= 2
    assert sum(size * times for size, times in seen.items()) >= 2 * 4 * 60
    assert Ledger.open(tmp_path / "ledger").summary().ids == 30


def test_rows_that_differ_have_different_hashes(spark: SparkSession) -> None:
    """What Spark hashes tells apart what it would otherwise take for the same."""
    pairs = [
        ("int(null)", "1"),
        ("struct(int(null) as x, 1 as y)", "struct(1 as x, int(null) as y)"),
        ("struct(int(null) as x)", "if(true, null, struct(int(null) as x))"),
        ("'a' collate utf8_lcase", "'A' collate utf8_lcase"),
        ("double('0.0')", "double('-0.0')"),
        ("float('0.0')", "float('-0.0')"),
        ("array(1, null)", "array(null, 1)"),
        ("map('a', int(null), 'b', 1)", "map('a', 1, 'b', int(null))"),
        ("parse_json('null')", "parse_json(null)"),
    ]
    for left, right in pairs:
        winners = []
        for order in ((left, right, right, left), (right, left, left, right)):
            first, second = (
                f"select 'k' as id, timestamp_micros({START}) as at, {one} as one, {two} as two"
                for one, two in (order[:2], order[2:])
            )
            frame = spark.sql(f"{first} union all {second}").coalesce(1)
            checked = detect_duplicates(frame, key="id", time="at", window="1 hour", parts=1)
            [new] = checked.filter("not is_duplicate").selectExpr("string(one)", "string(two)").collect()
            winners.append(new)
        assert winners[0] == winners[1], (left, right)


def test_an_older_spark_maps_whole_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Arrow UDFs, as in PySpark 4.0, the result is the same."""
    frame = messages(spark)
    wanted = detect_duplicates(frame, **OPTIONS)
    monkeypatch.setattr(plan, "has_arrow_udf", lambda _: False)
    with Ledger.open(tmp_path / "ledger").batch() as batch:
        checked = detect_duplicates(frame, **OPTIONS, ledger=batch, parts=PARTS)
        assert rows_of(checked) == rows_of(wanted)
    assert checked.schema.names == wanted.schema.names
    assert [each.dataType for each in checked.schema] == [each.dataType for each in wanted.schema]
    java: Any = checked._jdf
    assert "MapInArrow" in java.queryExecution().optimizedPlan().toString()


def test_nothing_leaves_a_task_before_its_run_is_published(tmp_path: Path) -> None:
    from oncebus.spark.task import FixedLedger, Task

    ledger = Ledger.open(tmp_path)
    identity = ledger.describe_or_check(["id string"], has_secret=True)
    place = FixedLedger(ledger.location, identity, ledger.batch().generation, 0, 2**62, 1)
    task = Task(("id",), "at", 10**6, 0, None, place, arguments=("id", "at", "__oncebus_part"), told_apart=())
    read = 0

    def batches() -> Iterator[tuple[pa.Array, ...]]:
        nonlocal read
        for number in range(3):
            assert not ledger.listing().runs
            read += 1
            yield pa.array([f"k{number}", "k"]), pa.array([START, START], pa.timestamp("us")), pa.array([0, 0])

    verdicts = task.verdicts(batches())
    first = next(verdicts)
    assert (read, len(first), len(ledger.listing().runs)) == (3, 2, 1)
    assert [len(each) for each in verdicts] == [2, 2]
