"""What a run reads from files, and that it writes it as it was. The command itself is in `test_dedup`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from oncebus.programs.dedup import frames
from oncebus.programs.dedup.request import DedupRequest
from oncebus.programs.dedup.sources import find_sources

LONG_AGO, FAR_AHEAD = 1_000_000_000, 4_000_000_000


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the shared session with the time zone of a run."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def request(folder: Path, *key: str, sequence: str | None = None, window: str = "10m") -> DedupRequest:
    return DedupRequest((str(folder),), key, "at", window, folder, None, None, sequence, None, None, None, False)


def put(path: Path, text: str, modified: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if modified is not None:
        os.utime(path, (modified, modified))


def read(session: SparkSession, asked: DedupRequest) -> DataFrame:
    files = find_sources(asked.given, asked.format)
    return frames.read_batch(session, files, frames.read_schema(session, files), asked)


def detect(session: SparkSession, asked: DedupRequest) -> DataFrame:
    return frames.detect(read(session, asked), asked)


def written(checked: DataFrame, format_name: str, folder: Path) -> list[list[str]]:
    """Write the accepted rows and the duplicates, and return the lines of both."""
    found = []
    for name, rows in zip(("out", "dropped"), frames.both_sides(checked, format_name), strict=True):
        frames.write(rows.coalesce(1), format_name, folder / name)
        parts = sorted((folder / name).glob(f"part-*.{format_name}"))
        found.append([line for path in parts for line in path.read_text().splitlines()])
    return found


def test_lines_of_json_are_copied_as_they_are(session: SparkSession, tmp_path: Path) -> None:
    kept = [
        '{"at": "2026-01-01T00:00:00+01:00", "id": 340282366920938463463374607431768211455, "x": null}',
        ' {"id":340282366920938463463374607431768211454,"at":"2026-01-01","n":12345678901234567890.10,"y":{"z":1e2}}',
        '{"id": null, "at": "2026-01-01", "n": 1.10, "note": "ö \\u00f6"}',
    ]
    again = kept[0].replace("+01:00", "Z").replace("}", " } ")
    put(tmp_path / "in" / "a.json", "\n\n".join([*kept, again]) + "\n")
    accepted, duplicates = written(detect(session, request(tmp_path / "in", "id", window="2h")), "json", tmp_path)
    assert sorted(accepted) == sorted(kept)
    assert duplicates == [again.rstrip(" }") + ',"original_time":"2025-12-31T23:00:00.000000Z"}']


def test_columns_of_csv_are_copied_as_they_are(session: SparkSession, tmp_path: Path) -> None:
    rows = ["007,2026-01-01 00:00:00,1.10,5", '7,2026-01-01T00:00:01Z,"a,""b",6', "7,2026-01-01T00:00:00Z,,4"]
    put(tmp_path / "in" / "a.csv", "\n".join(["id,at,n,s", *rows]) + "\n")
    accepted, duplicates = written(detect(session, request(tmp_path / "in", "id", sequence="s")), "csv", tmp_path)
    assert sorted(accepted) == sorted(["id,at,n,s", rows[0], rows[2]])
    assert duplicates == ["id,at,n,s,original_time,original_sequence", f"{rows[1]},2026-01-01T00:00:00.000000Z,4"]


def test_names_of_folders_are_text_and_files_outside_of_them_are_read_too(
    session: SparkSession, tmp_path: Path
) -> None:
    folders = {"id=007": "007", "id=7": "7", "id=a b%2Fc+d%": "a b/c+d%", "id=__HIVE_DEFAULT_PARTITION__": None}
    for number, folder in enumerate([*folders, "."]):
        put(tmp_path / "k=v" / "in" / folder / "more" / "x.json", f'{{"at":"2026-01-01","n":{number}}}\n')
    asked = request(tmp_path / "k=v" / "in", "id", sequence="n")
    expected = [(each, number) for number, each in enumerate([*folders.values(), None])]
    assert sorted((row["id"], row["n"]) for row in read(session, asked).where("id is not null").collect()) == sorted(
        pair for pair in expected if pair[0] is not None
    )
    accepted, duplicates = written(detect(session, asked), "json", tmp_path)
    assert sorted(accepted)[0] == '{"at":"2026-01-01","n":0,"id":"007"}'
    assert (len(accepted), duplicates) == (5, [])
    assert '{"at":"2026-01-01","n":4,"id":null}' in accepted


def test_a_stream_reads_each_file_once_whatever_its_date(session: SparkSession, tmp_path: Path) -> None:
    asked = request(folder := tmp_path / "in", "id")

    def follow() -> list[tuple[str, str]]:
        """Read what is new, and return all rows so far."""
        files = find_sources(asked.given, None)
        schema = frames.read_schema(session, files)
        rows = frames.read_stream(session, [folder], "json", schema, ["day"], asked).select("id", "day")
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted((row["id"], row["day"]) for row in session.read.parquet(str(tmp_path / "out")).collect())

    put(folder / "day=01" / "ahead.json", '{"id":"a","at":"2026-01-01"}\n', FAR_AHEAD)
    assert follow() == [("a", "01")]
    put(folder / "day=1" / "old.json", '{"id":"b","at":"2026-01-01"}\n', LONG_AGO)
    put(folder / "day=1" / "older.json", '{"id":"c","at":"2026-01-01"}\n', -1)
    assert follow() == [("a", "01"), ("b", "1"), ("c", "1")]


def test_a_field_of_a_struct_is_a_key(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.json", '{"u":{"id":1},"at":"2026-01-01"}\n' * 2 + '{"u":null,"at":"2026-01-01"}\n')
    checked = detect(session, request(tmp_path / "in", "u.id"))
    counts = frames.count_verdicts(checked, ("u.id",))
    assert counts == {"rows": 3, "new": 2, "duplicates": 1, "without_key": 1}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"id":0.30000000000000000001', "A key holds a number like 0.3. Write it as text or as a whole number."),
        ('[{"id":1,"at":"2026-01-01"}]', 'The line \'[{"id":1,"at":"2026-01-01"}]\' is not an object of JSON'),
        ('{"id":1,"at":"2026-01-01"} {', "is not an object of JSON in UTF-8."),
        # As when files without a line break at their end are put together.
        ('{"id":1,"at":"2026-01-01"}{"id":2,"at":"2026-01-01"}', "Malformed records are detected"),
        ('{"id":1,"at":"2026-01-01"}, {"id":2,"at":"2026-01-01"}', "is not an object of JSON in UTF-8."),
        ('{"id":1,"at":"2026-01-01"} x}', "Malformed records are detected"),
    ],
)
def test_lines_that_cannot_be_copied_exactly_are_refused(
    session: SparkSession, tmp_path: Path, line: str, error: str
) -> None:
    put(tmp_path / "in" / "a.json", f'{{"id":"a","at":"2026-01-01"}}\n{line}{"" if "at" in line else _REST}\n')
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        read(session, request(tmp_path / "in", "id")).select(F.max("id"), F.max(frames.ROW)).collect()
    assert error in str(raised.value)


_REST = ',"at":"2026-01-01"}'
