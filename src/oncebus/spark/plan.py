"""Builds the plan of `detect_duplicates`: rows of a key come into one task, and Python judges them.

Python gets only the columns that detection needs, as arguments of an Arrow UDF; the rest of each row stays in Java.
Spark treats a UDF as a function of one row, but this one judges a whole partition. So the UDF says that it is not
deterministic, and a filter on its result stays above it: Spark then neither leaves it out, nor evaluates it twice, nor
keeps rows from it. `tests/spark/test_plans.py` holds Spark to that, and
docs/decisions/0001-only-what-it-needs.md says why it is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.ledger import LANES
from oncebus.spark.columns import (
    CLOCK,
    LATE,
    PART,
    TIE,
    VERDICT,
    WITHOUT_KEY,
    Columns,
    placement,
)
from oncebus.spark.task import Task
from oncebus.spark.workers import in_worker

_HASHED = (
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
)
"""The types whose values Spark's hash tells apart, as `_hashable` prepares them."""


def add_verdicts(messages: DataFrame, columns: Columns, task: Task, parts: int | None) -> DataFrame:
    """Return the rows with the columns that a task adds. `parts` is the number of parts, if there is a ledger."""
    added = list(columns.output.fields[len(messages.schema) :])
    if task.reports:
        added += [T.StructField(name, T.BooleanType(), False) for name in (LATE, WITHOUT_KEY)]
    prepared = columns.prepare(messages)
    if not has_arrow_udf(messages.sparkSession):
        spread = _spread(prepared, columns, parts, _partition_columns(columns, parts, is_stream=messages.isStreaming))
        return spread.mapInArrow(in_worker(task), T.StructType([*messages.schema.fields, *added]))
    return _judge_by_columns(prepared, messages.schema, columns, task, parts, added, is_stream=messages.isStreaming)


def has_arrow_udf(spark: SparkSession) -> bool:
    """Return whether Spark and this PySpark have Arrow UDFs: from 4.1 on. With Spark Connect they may differ."""
    version = tuple(map(int, re.findall(r"\d+", spark.version)[:2]))
    return version >= (4, 1) and hasattr(F, "arrow_udf")


def _judge_by_columns(
    prepared: DataFrame,
    schema: T.StructType,
    columns: Columns,
    task: Task,
    parts: int | None,
    added: list[T.StructField],
    *,
    is_stream: bool,
) -> DataFrame:
    own = [f"c{at}" for at in range(len(schema))]
    used = (*columns.key, columns.time, columns.sequence, columns.window)
    hashed, others = _told_apart({name: field for name, field in zip(own, schema, strict=True) if name not in used})
    told_apart = (*((TIE,) if hashed else ()), *others)
    named = dict.fromkeys([name for name in used if isinstance(name, str)])
    arguments = {name: F.col(name) for name in (*named, *told_apart)}
    before = {TIE: F.xxhash64(*hashed)} if hashed else {}
    for name, column in _partition_columns(columns, parts, is_stream=is_stream).items():
        if parts == LANES and name == PART:
            # An argument would get the number of the task, which may compute several partitions, as behind `coalesce`.
            before[name] = column
            column = F.col(name)
        arguments[name] = column
    spread = _spread(prepared, columns, parts, before)
    verdict = T.StructType([T.StructField(each.name, each.dataType) for each in added])
    # The oldest PySpark has no Arrow UDFs.
    arrow: Any = F
    judging = in_worker(replace(task, arguments=tuple(arguments), told_apart=told_apart).verdicts)
    judging.__name__ = "detect_duplicates"
    # PySpark reads the kind of UDF from these.
    judging.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    judge = arrow.arrow_udf(judging, verdict).asNondeterministic()
    # Without this filter, a limit or a filter behind it would be moved before the UDF.
    judged = spread.select(*own, judge(*arguments.values()).alias(VERDICT)).where(F.col(VERDICT).isNotNull())
    result = judged.select(*own, *(_field(each) for each in added))
    return result.toDF(*schema.names, *(each.name for each in added))


def _field(added: T.StructField) -> Column:
    value = F.col(VERDICT).getField(added.name)
    # No field is null for Spark unless the struct might be, and it does not know that no struct is.
    return (value if added.nullable else F.coalesce(value, F.lit(False))).alias(added.name)


def _spread(prepared: DataFrame, columns: Columns, parts: int | None, added: dict[str, Column]) -> DataFrame:
    """Return the rows with some columns added, and with equal keys in one partition."""
    if added:
        # Before the shuffle, Spark computes these columns together with the scan. After it, they would copy every row.
        prepared = prepared.select("*", *(column.alias(name) for name, column in added.items()))
    if parts == LANES:
        return prepared
    by = placement(columns)
    return prepared.repartition(*by) if parts is None else prepared.repartition(parts, *by)


def _partition_columns(columns: Columns, parts: int | None, *, is_stream: bool) -> dict[str, Column]:
    """Return the columns that a task with a ledger needs and that are the same in all of its rows."""
    if parts is None:
        return {}
    # The part, as Spark itself has chosen it: a run's name tells which keys it may hold.
    part = F.spark_partition_id() if parts == LANES else F.pmod(F.hash(*placement(columns)), F.lit(parts))
    if not is_stream:
        return {PART: part}
    # Spark records the current timestamp with the batch, so a repeated batch sees the same one. It puts it into the
    # plan as a number, after optimising. In an ordinary expression that number would be part of the generated code,
    # and every batch would compile that code again and run it cold. `aggregate` is interpreted; the array is empty.
    nothing = F.array().cast("array<bigint>")
    clock = F.aggregate(nothing, F.unix_micros(F.current_timestamp()), lambda time, _: time)
    return {PART: part, CLOCK: clock}


def _told_apart(fields: dict[str, T.StructField]) -> tuple[list[Column], list[str]]:
    """Return what Spark can hash to tell rows apart, and the names of the columns that it cannot hash.

    Spark's hash of a row skips nulls. It ignores where an array ends, and refuses maps.
    """
    hashed: list[Column] = []
    others: list[str] = []
    for name, field in fields.items():
        pieces = list(_hashable(F.col(name), field.dataType, is_nullable=field.nullable))
        if any(piece is None for piece in pieces):
            others.append(name)
        hashed += [piece for piece in pieces if piece is not None and name not in others]
    return hashed, others


def _hashable(column: Column, kind: T.DataType, *, is_nullable: bool) -> Iterator[Column | None]:
    """Yield what to hash for a column; None if its values cannot be told apart by Spark's hash."""
    if isinstance(kind, T.StructType) and len({name.lower() for name in kind.names}) == len(kind):
        for field in kind.fields:
            yield from _hashable(column.getField(field.name), field.dataType, is_nullable=True)
    elif not isinstance(kind, _HASHED):
        yield None
    elif isinstance(kind, T.StringType):
        # By their bytes, whatever the collation.
        yield column if kind == T.StringType() else column.cast("binary")
    else:
        yield column
        if isinstance(kind, T.FloatType | T.DoubleType):
            # The hash of zero and of negative zero is the same.
            yield F.when(column == 0, column.cast("string"))
    if is_nullable:
        yield column.isNull()
