"""Tests `oncebus warm-up` with real Java: the archive it creates, a second run, and its errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncebus.pipeline.jvm import ClassArchive
from oncebus.programs.cli import main
from oncebus.programs.serve import warm_up as serve_warm_up

pytestmark = pytest.mark.slow


@pytest.mark.release
def test_it_saves_the_classes_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(cache)])
    assert done.exit_code == 0, done.output
    archive = ClassArchive(cache)
    *first, last = done.output.splitlines()
    assert first == ["Saving Spark's classes takes up to a minute and 160 MB, once."]
    assert last == f"Spark's classes are saved: {archive.path}"
    assert archive.path is not None
    assert archive.path.stat().st_size > 1 << 20
    assert os.listdir(cache) == [archive.path.name]
    again = CliRunner().invoke(main, ["warm-up", "--cache", str(cache)])
    assert (again.exit_code, again.output) == (0, f"Spark's classes are saved already: {archive.path}\n")


def test_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.startswith(f"oncebus: Spark needs Java 17 or later, but JAVA_HOME is '{tmp_path}'.")


def test_a_broker_that_fails_is_reported_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('oncebus: There is no room.')"]
    monkeypatch.setattr(serve_warm_up, "command", lambda _: failing)
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(tmp_path / "cache")])
    assert done.exit_code == 1
    assert done.output.splitlines()[1:] == ["oncebus: Spark's classes cannot be saved: There is no room."]


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = CliRunner().invoke(main, ["warm-up", "--cache", str(tmp_path)])
    assert done.exit_code == 1
    assert "other users can write to the cache folder" in done.output
