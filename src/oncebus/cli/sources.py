"""What is to be read: which files, in which format, and as which DataFrame."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncebus.cli.errors import RequestError

FORMATS = ("parquet", "json", "csv")
_EXTENSIONS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<path>.*)", re.DOTALL)
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


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was listed."""

    path: str
    size: int
    modified_ns: int

    def has_changed(self) -> bool:
        """Whether it is no longer the file that was listed."""
        try:
            return SourceFile.at(self.path) != self
        except FileNotFoundError:
            return True

    @classmethod
    def at(cls, path: str) -> SourceFile:
        """The file as it is now."""
        stat = os.stat(path)
        return cls(path, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of all SRC arguments, in one format."""

    given: tuple[Path, ...]
    files: tuple[SourceFile, ...]
    format: str

    @property
    def is_partitioned(self) -> bool:
        """Whether there are folders like `day=1`, from whose names Spark makes columns."""
        parents = (Path(file.path).parent for file in self.files)
        return any("=" in name for parent in set(parents) for name in _below(parent, self.given))

    @property
    def is_packed(self) -> bool:
        """Whether the files are a good deal smaller than what is in them."""
        return self.format == "parquet" or any(file.path.endswith(_PACKED) for file in self.files)


def local_path(text: str, what: str) -> Path:
    """The absolute path of an argument that must be on this machine's file system."""
    match = _SCHEME.fullmatch(text)
    if match is not None and not os.path.lexists(text):
        if match["scheme"].lower() != "file":
            raise RequestError(f"{what} '{text}' is not a local path. Only local files and folders are supported here.")
        text = re.sub(r"^//(?=/)", "", match["path"])
    return Path(os.path.abspath(text))


def find_sources(given: Sequence[str], format_name: str | None) -> Sources:
    """List the files of all SRC arguments. Hidden ones (`.x`, `_x`) do not count, as in Spark."""
    paths = tuple(dict.fromkeys(local_path(text, "Source") for text in given))
    files: dict[str, SourceFile] = {}
    for path in paths:
        if not path.exists():
            raise RequestError(f"Source '{path}' does not exist.")
        found = {name: SourceFile.at(name) for name in _files_of(path)}
        if not found:
            raise RequestError(f"Source '{path}' holds no files.")
        files.update(found)
    ordered = tuple(files[name] for name in sorted(files))
    return Sources(paths, ordered, format_name or guess_format(file.path for file in ordered))


def guess_format(names: Iterable[str]) -> str:
    """The format that all the names' extensions tell."""
    first: tuple[str, str] | None = None
    for name in names:
        stem, extension = os.path.splitext(name.lower())
        if extension in _PACKED:
            extension = os.path.splitext(stem)[1]
        guessed = _EXTENSIONS.get(extension)
        if guessed is None:
            raise RequestError(f"The format of '{name}' cannot be guessed from its name. Give --format.")
        if first is not None and first[0] != guessed:
            raise RequestError(f"'{first[1]}' looks like {first[0]} and '{name}' like {guessed}. Give --format.")
        first = first or (guessed, name)
    if first is None:
        raise RequestError("There are no files to guess the format from. Give --format.")
    return first[0]


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


def _files_of(path: Path) -> Iterator[str]:
    if path.is_file():
        yield str(path)
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (os.path.join(folder, name) for name in names if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _below(folder: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    for root in roots:
        if folder.is_relative_to(root):
            return folder.relative_to(root).parts
    return ()


def _batch_paths(sources: Sources) -> list[str]:
    # Folders like day=1 must be given by their root. Otherwise exactly the files that were listed are read: Spark would
    # leave out those in sub-folders, and take in what has come since.
    if sources.is_partitioned:
        return [_for_spark(path) for path in sources.given]
    return [_for_spark(file.path) for file in sources.files]


def _for_spark(path: Path | str) -> str:
    return "file:" + _GLOB.sub(r"\\\1", str(path))
