from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from oncebus.programs.cli.errors import in_one_line
from oncebus.programs.dedup import DedupError
from oncebus.programs.dedup.sources import find_sources, guess_format, local_path, outermost
from oncebus.spark.columns import BadColumn


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.parquet"], "parquet"),
        (["a.JSONL", "b.json.gz"], "json"),
        (["a.csv"], "csv"),
        (["x.snappy.parquet"], "parquet"),
    ],
)
def test_the_format_is_guessed_from_the_extensions(names: list[str], expected: str) -> None:
    assert guess_format(names) == expected


def test_a_format_that_cannot_be_guessed_is_an_error() -> None:
    with pytest.raises(DedupError, match=r"The format of 'a\.txt' cannot be guessed from its name\. Give --format\."):
        guess_format(["a.txt"])
    with pytest.raises(DedupError, match=r"'a\.csv' looks like csv and 'b\.json' like json\. Give --format\."):
        guess_format(["a.csv", "b.json"])


def test_files_in_subfolders_are_found_but_hidden_ones_are_not(tmp_path: Path) -> None:
    for name in ("a.json", "b/c.json", "_oncebus/d.json", ".e.json", "_f.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = find_sources([str(tmp_path)], None)
    assert [Path(file.path).name for file in found.files] == ["a.json", "c.json"]
    assert found.partitions == []
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "g.json").write_text("{}")
    assert find_sources([str(tmp_path)], None).partitions == ["day"]


def test_a_subfolder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.json").write_text("{}")
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path == str(tmp_path / "b"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    # The tests may run as root, who may read everything.
    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DedupError, match=r"^Source '.*/b' cannot be read: Permission denied\.$"):
        find_sources([str(tmp_path)], None)


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    file = find_sources([str(path)], None).files[0]
    assert not file.has_changed()
    path.write_text("{}{}")
    assert file.has_changed()
    path.unlink()
    assert file.has_changed()


def test_only_local_paths_are_accepted(tmp_path: Path) -> None:
    assert local_path(f"file://{tmp_path}", "Output") == tmp_path
    assert local_path(f"file:{tmp_path}", "Output") == tmp_path
    with pytest.raises(DedupError, match=r"Output 's3a://b/c' is not a local path"):
        local_path("s3a://b/c", "Output")


_IN_A_TASK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "task.py", line 1, in __call__
oncebus.spark.columns.BadColumn: The column 'at' is null in 1 of 2 rows of this part.

SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadColumn("There is no\n such column."), "There is no such column."),
        (RuntimeError(_IN_A_TASK), "The column 'at' is null in 1 of 2 rows of this part."),
        (RuntimeError("[USER_RAISED_EXCEPTION] Bad text. SQLSTATE: P0001"), "Bad text."),
        (RuntimeError("[NO_SUCH] It is not there. SQLSTATE: 42P01;\nproject"), "[NO_SUCH] It is not there."),
        (RuntimeError("o1.load\nCaused by: java.io.IOException: No space left\n\tat x"), "No space left"),
        (PermissionError(13, "Permission denied", "/out"), "Permission denied: '/out'"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_every_error_is_one_line(error: Exception, expected: str) -> None:
    assert in_one_line(error) == expected


def test_a_source_inside_another_one_is_read_once(tmp_path: Path) -> None:
    outer, inner, hidden = tmp_path / "a", tmp_path / "a" / "day=1", tmp_path / "a" / "_old"
    for folder in (inner, hidden):
        folder.mkdir(parents=True)
        (folder / "x.json").write_text("{}")
    (outer / "latest.json").symlink_to(inner / "x.json")
    (tmp_path / "link").symlink_to(outer)
    given = [str(path) for path in (inner, outer, tmp_path / "link", hidden)]
    found = find_sources(given, None)
    assert [Path(file.path).parent for file in found.files] == [hidden, inner]
    assert found.partitions == ["day"]
    assert outermost([Path(path) for path in given]) == [outer, hidden]
