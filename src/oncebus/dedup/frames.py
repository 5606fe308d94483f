"""The DataFrames of a run: read from its files, divided by their verdicts, written to its folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.dedup.sources import Sources
from oncebus.spark.columns import IS_DUPLICATE

_GLOB = re.compile(r"([\\*?\[\]{}])")

# Malformed rows stop the run: Spark would make them rows of nulls, which is to lose them.
_READ_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {"mergeSchema": "true"},
    "json": {"mode": "FAILFAST"},
    # Quotes are doubled in them as RFC 4180 has it, and columns are those of the header, not of the position.
    "csv": {"mode": "FAILFAST", "header": "true", "escape": '"', "enforceSchema": "false"},
}
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WRITE_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": _TIMES,
    "csv": _TIMES
    | {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}


def read_schema(spark: SparkSession, sources: Sources, as_text: Sequence[str]) -> T.StructType:
    """The schema of the files that are there. In CSV the columns `as_text` are text whatever they look like.

    A key must be: as numbers, the ids '007' and '7' would be one.
    """
    reader = spark.read.options(**_READ_OPTIONS[sources.format])
    if sources.format == "csv":
        reader = reader.option("inferSchema", "true")
    schema = reader.format(sources.format).load(_batch_paths(sources)).schema
    if sources.format == "csv":
        fields = [T.StructField(f.name, T.StringType()) if f.name in as_text else f for f in schema.fields]
        schema = T.StructType(fields)
    return schema


def read_batch(spark: SparkSession, sources: Sources, schema: T.StructType) -> DataFrame:
    """The files as a DataFrame."""
    reader = spark.read.schema(schema).options(**_READ_OPTIONS[sources.format])
    return reader.format(sources.format).load(_batch_paths(sources))


def read_stream(
    spark: SparkSession, folders: Sequence[Path], format_name: str, schema: T.StructType, *, partitioned: bool
) -> DataFrame:
    """The folders as a stream of the files that are and will be in them."""
    reader = spark.readStream.schema(schema).options(**_READ_OPTIONS[format_name]).format(format_name)
    if not partitioned:
        reader = reader.option("recursiveFileLookup", "true")
    streams = [reader.load(_for_spark(folder)) for folder in folders]
    whole = streams[0]
    for stream in streams[1:]:
        whole = whole.unionByName(stream)
    return whole


def with_timestamps(messages: DataFrame, time: str) -> DataFrame:
    """The same rows, with a time column of text read as timestamps. Text that is none fails the query."""
    if time not in messages.columns or not isinstance(messages.schema[time].dataType, T.StringType):
        return messages
    text = F.col(quoted(time))
    value = text.try_cast("timestamp")
    complaint = F.concat(
        F.lit(f"The time column '{time}' holds '"),
        text,
        F.lit("', which is not a timestamp like 2026-01-31T12:00:00Z."),
    )
    return messages.withColumn(
        time, F.when(text.isNotNull() & value.isNull(), F.raise_error(complaint)).otherwise(value)
    )


def write(rows: DataFrame, format_name: str, folder: Path) -> None:
    """Write to a new folder in the format, times with microseconds."""
    rows.write.format(format_name).options(**_WRITE_OPTIONS[format_name]).save(f"file:{folder}")


def quoted(name: str) -> str:
    """The column's name where Spark would take a dot for a field."""
    return "`" + name.replace("`", "``") + "`"


def both_sides(checked: DataFrame, columns: list[str]) -> tuple[DataFrame, DataFrame]:
    """The accepted rows as they came, and the duplicates with their originals."""
    accepted = checked.where(~F.col(IS_DUPLICATE)).select(*[quoted(name) for name in columns])
    return accepted, checked.where(IS_DUPLICATE).drop(IS_DUPLICATE)


def count_verdicts(checked: DataFrame, key: tuple[str, ...]) -> dict[str, int]:
    """How many rows there are, of each kind. Evaluates the DataFrame, and with that fills its cache."""
    without_key = F.lit(False)
    for name in key:
        without_key = without_key | F.col(quoted(name)).isNull()
    counted = checked.agg(
        F.count("*").alias("rows"),
        F.count_if(IS_DUPLICATE).alias("duplicates"),
        F.count_if(without_key).alias("without"),
    ).first()
    if counted is None:
        raise RuntimeError("an aggregate without groups has one row")
    rows, duplicates, without = counted
    return {"rows": rows, "accepted": rows - duplicates, "duplicates": duplicates, "without_key": without}


def _batch_paths(sources: Sources) -> list[str]:
    # Folders like day=1 must be given by their root. Otherwise exactly the files that were listed are read: Spark would
    # leave out those in sub-folders, and take in what has come since.
    if sources.is_partitioned:
        return [_for_spark(path) for path in sources.given]
    return [_for_spark(file.path) for file in sources.files]


def _for_spark(path: Path | str) -> str:
    return "file:" + _GLOB.sub(r"\\\1", str(path))
