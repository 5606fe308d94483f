"""`oncebus warm-up` with Java and all, and what it says where it has nothing to do or cannot do it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebus.cli import main
from oncebus.pipeline.jvm import ClassArchive


def test_it_saves_what_later_starts_use_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(cache)])
    assert done.exit_code == 0, done.output
    archive = ClassArchive(cache)
    assert done.output == f"Spark's classes are saved: {archive.path}\n"
    assert archive.path is not None
    assert archive.path.stat().st_size > 1 << 20
    assert os.listdir(cache) == [archive.path.name]
    again = CliRunner().invoke(main, ["warm-up", "--cache", str(cache)])
    assert (again.exit_code, again.output) == (0, f"Spark's classes are saved already: {archive.path}\n")


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.startswith(f"oncebus: Spark needs Java 17 or later, but JAVA_HOME is '{tmp_path}'.")


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(tmp_path)])
    assert done.exit_code == 1
    assert "other users can write to the cache folder" in done.output
