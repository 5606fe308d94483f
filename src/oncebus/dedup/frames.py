"""The DataFrames of a run: reading its files, splitting the rows by verdict, writing its folders."""

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

# FAILFAST: by default Spark turns malformed rows into rows of nulls, which would lose them silently.
_READ_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {"mergeSchema": "true"},
    "json": {"mode": "FAILFAST"},
    # Quotes are escaped by doubling, as in RFC 4180. Columns are matched by the header, not by position.
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
    """Return the schema of the existing files. In CSV, the columns in `as_text` are always text.

    Key columns must be text: as numbers, the ids '007' and '7' would be equal.
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
    """Return the files as a DataFrame."""
    reader = spark.read.schema(schema).options(**_READ_OPTIONS[sources.format])
    return reader.format(sources.format).load(_batch_paths(sources))


def read_stream(
    spark: SparkSession, folders: Sequence[Path], format_name: str, schema: T.StructType, *, partitioned: bool
) -> DataFrame:
    """Return the existing and future files of the folders as a stream."""
    reader = spark.readStream.schema(schema).options(**_READ_OPTIONS[format_name]).format(format_name)
    if not partitioned:
        reader = reader.option("recursiveFileLookup", "true")
    streams = [reader.load(_for_spark(folder)) for folder in folders]
    whole = streams[0]
    for stream in streams[1:]:
        whole = whole.unionByName(stream)
    return whole


def with_timestamps(messages: DataFrame, time: str) -> DataFrame:
    """Return the rows with the time column converted to timestamps if it is text. Invalid text makes the query fail."""
    if time not in messages.columns or not isinstance(messages.schema[time].dataType, T.StringType):
        return messages
    text = F.col(quoted(time))
    value = text.try_cast("timestamp")
    problem = F.concat(
        F.lit(f"The time column '{time}' holds '"),
        text,
        F.lit("', which is not a timestamp like 2026-01-31T12:00:00Z."),
    )
    return messages.withColumn(time, F.when(text.isNotNull() & value.isNull(), F.raise_error(problem)).otherwise(value))


def write(rows: DataFrame, format_name: str, folder: Path) -> None:
    """Write rows to a new folder in the given format. Times keep their microseconds."""
    rows.write.format(format_name).options(**_WRITE_OPTIONS[format_name]).save(f"file:{folder}")


def quoted(name: str) -> str:
    """Return a column's name in backticks. Without them Spark reads a dot as access to a field."""
    return "`" + name.replace("`", "``") + "`"


def both_sides(checked: DataFrame, columns: list[str]) -> tuple[DataFrame, DataFrame]:
    """Return the accepted rows, and the duplicates. Only the duplicates have the columns about their originals."""
    accepted = checked.where(~F.col(IS_DUPLICATE)).select(*[quoted(name) for name in columns])
    return accepted, checked.where(IS_DUPLICATE).drop(IS_DUPLICATE)


def count_verdicts(checked: DataFrame, key: tuple[str, ...]) -> dict[str, int]:
    """Return the number of rows, in total and by verdict. This evaluates the DataFrame and so fills its cache."""
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
    return {"rows": rows, "new": rows - duplicates, "duplicates": duplicates, "without_key": without}


def _batch_paths(sources: Sources) -> list[str]:
    # Spark needs the root of folders like day=1 to make columns of them. Otherwise pass exactly the listed files: given
    # a folder, Spark would skip subfolders and include files that have arrived since.
    if sources.is_partitioned:
        return [_for_spark(path) for path in sources.given]
    return [_for_spark(file.path) for file in sources.files]


def _for_spark(path: Path | str) -> str:
    return "file:" + _GLOB.sub(r"\\\1", str(path))
