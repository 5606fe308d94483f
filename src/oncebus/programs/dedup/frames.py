"""The DataFrames of a run: reading its files, detection, splitting the rows by verdict, writing its folders.

A run copies what it reads. So a DataFrame has the columns that detection needs, parsed, and beside them `ROW`: a line
of JSON as text, or all columns of a CSV or Parquet file as they are. Only `ROW` is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.ledger import LedgerBatch
from oncebus.programs.dedup.lines import STRICT, TIMES, check_keys, parse_line, with_all_digits, with_fields
from oncebus.programs.dedup.request import DedupRequest
from oncebus.programs.dedup.sources import Sources, outer_first
from oncebus.spark import detect_duplicates
from oncebus.spark.columns import IS_DUPLICATE, ORIGINAL_SEQUENCE, ORIGINAL_TIME, quote
from oncebus.values import disk

ROW = "_oncebus_row"
_LINE = "value"
_PARSED = "_oncebus_parsed"
_RESULTS = (IS_DUPLICATE, ORIGINAL_TIME, ORIGINAL_SEQUENCE)
_FILE = "_metadata.file_path"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_GLOB = re.compile(r"([\\*?\[\]{}])")

_READ_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {"mergeSchema": "true"},
    "json": STRICT,
    # Quotes are escaped by doubling, as in RFC 4180. Columns are matched by the header, not by position.
    "csv": STRICT | {"header": "true", "escape": '"', "enforceSchema": "false"},
}
_STREAM_OPTIONS = {
    "recursiveFileLookup": "true",
    # By default Spark skips a file without a word if its date is a week before that of the newest one.
    "maxFileAge": "1000000d",
}
_WRITE_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "csv": TIMES
    | {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}


def read_schema(spark: SparkSession, sources: Sources) -> T.StructType:
    """Return the columns of the files. Those of CSV are text: as numbers, the ids '007' and '7' would be equal."""
    reader = spark.read.options(**_READ_OPTIONS[sources.format]).format(sources.format)
    return reader.load(_paths(sources)).schema


def read_batch(spark: SparkSession, sources: Sources, schema: T.StructType, request: DedupRequest) -> DataFrame:
    """Return the rows of exactly the listed files."""
    reader = spark.read.options(**_READ_OPTIONS[sources.format])
    reader = reader.format("text") if sources.format == "json" else reader.format(sources.format).schema(schema)
    return _rows(reader.load(_paths(sources)), schema, sources.format, sources.given, sources.partitions, request)


def read_stream(
    spark: SparkSession,
    folders: Sequence[Path],
    format_name: str,
    schema: T.StructType,
    partitions: Sequence[str],
    request: DedupRequest,
) -> DataFrame:
    """Return the rows of the existing and future files of the folders, each file once, whatever its date."""
    reader = spark.readStream.options(**_READ_OPTIONS[format_name], **_STREAM_OPTIONS)
    reader = reader.format("text") if format_name == "json" else reader.format(format_name).schema(schema)
    streams = [
        _rows(reader.load(_for_spark(folder)), schema, format_name, (folder,), partitions, request)
        for folder in folders
    ]
    whole = streams[0]
    for stream in streams[1:]:
        whole = whole.unionByName(stream)
    return whole


def detect(
    messages: DataFrame, request: DedupRequest, ledger: str | LedgerBatch | None = None, parts: int | None = None
) -> DataFrame:
    """Mark the duplicates among the messages, as the request asks. See `detect_duplicates`."""
    return detect_duplicates(
        messages,
        key=request.key,
        time=request.time,
        window=request.window_among(messages.columns),
        ledger=ledger,
        sequence=request.sequence,
        lateness=request.lateness,
        parts=parts,
    )


def both_sides(checked: DataFrame, format_name: str) -> tuple[DataFrame, DataFrame]:
    """Return the accepted rows, and the duplicates. Only the duplicates have the columns about their originals."""
    accepted, duplicates = checked.where(~F.col(IS_DUPLICATE)), checked.where(IS_DUPLICATE)
    about = [F.col(name) for name in (ORIGINAL_TIME, ORIGINAL_SEQUENCE) if name in checked.columns]
    if format_name == "json":
        return accepted.select(ROW), duplicates.select(with_fields(F.col(ROW), about))
    return accepted.select(f"{ROW}.*"), duplicates.select(f"{ROW}.*", *about)


def write(rows: DataFrame, format_name: str, folder: Path) -> None:
    """Write one of `both_sides` to a new folder. Times keep their microseconds."""
    if format_name != "json":
        rows.write.format(format_name).options(**_WRITE_OPTIONS[format_name]).save(f"file:{folder}")
        return
    rows.write.text(f"file:{folder}")
    for file in folder.glob("part-*.txt"):
        disk.replace(file, file.with_suffix(".json"))


def count_verdicts(checked: DataFrame, key: tuple[str, ...]) -> dict[str, int]:
    """Return the number of rows, in total and by verdict. This evaluates the DataFrame and so fills its cache."""
    without_key = F.lit(False)
    for name in key:
        without_key = without_key | _column(checked.columns, name).isNull()
    counted = checked.agg(
        F.count("*").alias("rows"),
        F.count_if(IS_DUPLICATE).alias("duplicates"),
        F.count_if(without_key).alias("without"),
    ).first()
    if counted is None:
        raise RuntimeError("an aggregate without groups has one row")
    rows, duplicates, without = counted
    return {"rows": rows, "new": rows - duplicates, "duplicates": duplicates, "without_key": without}


def _rows(
    read: DataFrame,
    schema: T.StructType,
    format_name: str,
    roots: Sequence[Path],
    partitions: Sequence[str],
    request: DedupRequest,
) -> DataFrame:
    """Return the columns that detection needs, and `ROW`. A field or column of the files hides a folder of its name."""
    names = {folder: unquote(folder) for folder in partitions if unquote(folder) not in schema.names}
    folders = [_partition_value(roots, folder).alias(name) for folder, name in names.items()]
    every = [*schema.names, *names.values()]
    wanted = request.needed_among(every)
    # Detection refuses a source that has a column which it adds.
    needed = [name for name in every if name in wanted or name.lower() in _RESULTS]
    if format_name == "json":
        rows = _parse_lines(read, schema, folders, needed, request)
    else:
        named = read.select("*", *folders)
        rows = named.select(*map(quote, needed), F.struct(*map(quote, named.columns)).alias(ROW))
    rows = _with_type(rows, request.time, "time", "timestamp", "a timestamp like 2026-01-31T12:00:00Z")
    rows = _with_type(rows, request.window, "window", "bigint", "a whole number of microseconds")
    return _with_type(rows, request.sequence or "", "sequence", "bigint", "a whole number")


def _parse_lines(
    read: DataFrame, schema: T.StructType, folders: Sequence[Column], needed: Sequence[str], request: DedupRequest
) -> DataFrame:
    fields = with_all_digits(T.StructType([schema[name] for name in needed if name in schema.names]))
    line = F.col(_LINE)
    # Spark's reader of JSON skips empty lines too.
    lines = read.where(line.rlike(r"\S")).select(*folders, parse_line(line, fields).alias(_PARSED), line.alias(ROW))
    values = [F.col(quote(name)) for name in lines.columns[: len(folders)]]
    rows = lines.select(f"{_PARSED}.*", *values, with_fields(F.col(ROW), values).alias(ROW))
    texts = [name for name in request.key if isinstance(_type_of(fields, name), T.StringType)]
    return rows.withColumn(ROW, check_keys(F.col(ROW), [_column(rows.columns, name) for name in texts]))


def _partition_value(roots: Sequence[Path], name: str) -> Column:
    """Return the text after `name=` in a folder below the roots, or null.

    Spark makes columns of such folders too, but `id=007` and `id=7` can become equal numbers, and it skips files that
    are in no such folder.
    """
    path = F.regexp_replace(F.url_decode(_without_plus(F.col(_FILE))), "^file:/+", "/")
    below = [
        F.when(path.startswith(f"{root}/"), path.substr(F.length(F.lit(str(root))) + 1, F.length(path)))
        for root in outer_first(roots)
    ]
    value = F.regexp_extract(F.coalesce(*below), rf"/\Q{name}\E=([^/]*)/", 1)
    # Spark escapes ASCII characters only.
    literal = F.regexp_replace(value, "%(?![0-7][0-9A-Fa-f])", "%25")
    return F.when(~value.isin("", _NULL), F.url_decode(_without_plus(literal)))


def _without_plus(text: Column) -> Column:
    # In forms, a plus is a space. In paths it is not.
    return F.replace(text, F.lit("+"), F.lit("%2B"))


def _with_type(rows: DataFrame, name: str, role: str, kind: str, wanted: str) -> DataFrame:
    """Return the rows with a column of text converted to a type. Invalid text makes the query fail."""
    if name not in rows.columns or not isinstance(rows.schema[name].dataType, T.StringType):
        return rows
    text = F.col(quote(name))
    value = text.try_cast(kind)
    problem = F.concat(F.lit(f"The {role} column '{name}' holds '"), text, F.lit(f"', which is not {wanted}."))
    return rows.withColumn(name, F.when(text.isNotNull() & value.isNull(), F.raise_error(problem)).otherwise(value))


def _column(columns: Sequence[str], name: str) -> Column:
    """Return a column, or a field of a struct, as `detect_duplicates` understands its name."""
    return F.col(quote(name) if name in columns else name)


def _type_of(schema: T.DataType, name: str) -> T.DataType | None:
    """Return the type of a column or a field of a struct; None if there is none."""
    if not isinstance(schema, T.StructType):
        return None
    if name in schema.names:
        return schema[name].dataType
    root, _, rest = name.partition(".")
    return _type_of(schema[root].dataType, rest) if rest and root in schema.names else None


def _paths(sources: Sources) -> list[str]:
    # Exactly the listed files: given a folder, Spark would skip subfolders and include files that have arrived since.
    return [_for_spark(file.path) for file in sources.files]


def _for_spark(path: Path | str) -> str:
    return "file:" + _GLOB.sub(r"\\\1", str(path))
