from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from oncebus.pipeline import jvm
from oncebus.pipeline.jvm import ClassArchive, NoArchive, Recording, default_cache


def recorded(recording: Recording) -> Path:
    """Return the path that Java writes the archive to."""
    return Path(recording.options[0].split("=", 1)[1].strip('"'))


def ended(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, well: bool = True, leaves: bytes | None) -> None:
    """Close a recording as if Java had run with its options."""

    def end() -> bool:
        if leaves is not None:
            recorded(recording).write_bytes(leaves)
        return well

    monkeypatch.setattr(jvm, "_stop_java", end)
    recording.close()


def test_a_recording_leaves_an_archive_and_later_starts_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my cache"
    archive = ClassArchive(folder)
    assert not archive.exists()
    assert archive.options == ()
    recording = Recording(archive)
    assert recording.options[0].startswith(f'-XX:ArchiveClassesAtExit="{folder}/.')
    ended(recording, monkeypatch, leaves=b"classes")
    (kept,) = folder.iterdir()
    assert kept.read_bytes() == b"classes"
    assert ClassArchive(folder).options[0] == f'-XX:SharedArchiveFile="{kept}"'


def test_an_archive_is_not_used_for_jars_that_were_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "pyspark" / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"classes")
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    before = ClassArchive(tmp_path / "cache").path
    assert before is not None
    assert ClassArchive(tmp_path / "cache").path == before
    os.utime(jar, (0, 0))
    assert ClassArchive(tmp_path / "cache").path != before


@pytest.mark.parametrize(("well", "leaves"), [(False, b"half"), (True, None)])
def test_an_unfinished_archive_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, well: bool, leaves: bytes | None
) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(NoArchive, match="Java exited without writing a class archive"):
        ended(Recording(ClassArchive(tmp_path)), monkeypatch, well=well, leaves=leaves)
    assert list(tmp_path.iterdir()) == []


class _Java:
    """A Java process that exits, or does not, when its standard input is closed."""

    def __init__(self, code: int | None) -> None:
        self.proc = self.stdin = self
        self._code = code
        self.is_closed = self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True

    def shutdown(self) -> None:
        raise OSError("Java is gone already")

    def close(self) -> None:
        self.is_closed = True

    def wait(self, seconds: float) -> int:
        assert self.is_closed
        if self._code is None:
            raise subprocess.TimeoutExpired("java", seconds)
        return self._code


@pytest.mark.parametrize(("code", "is_kept"), [(0, True), (1, False), (None, False)])
def test_only_a_java_that_exits_without_error_leaves_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, is_kept: bool
) -> None:
    tmp_path.chmod(0o700)
    archive = ClassArchive(tmp_path)
    recording = Recording(archive)
    recorded(recording).write_bytes(b"classes")
    monkeypatch.setattr(SparkContext, "_jvm", None)
    java = _Java(code)
    monkeypatch.setattr(SparkContext, "_gateway", java)
    if is_kept:
        recording.close()
    else:
        with pytest.raises(NoArchive):
            recording.close()
    assert archive.exists() is is_kept
    assert java.is_killed is (code is None)
    assert len(list(tmp_path.iterdir())) == is_kept


def test_old_and_unfinished_archives_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other installations stay as long as they are used."""
    tmp_path.chmod(0o700)
    archive = ClassArchive(tmp_path)
    assert archive.path is not None
    installation = archive.path.name.rpartition("-")[0]
    kept = {"notes", "spark-0-new.jsa", ".recording.jsa", archive.path.name}
    for name in (*kept, "spark-0-unused.jsa", ".killed.jsa", f"{installation}-replaced.jsa"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".killed.jsa", (0, time.time() - 4000))
    os.utime(tmp_path / "spark-0-unused.jsa", (0, time.time() - 31 * 86400))
    ended(Recording(archive), monkeypatch, leaves=b"new")
    assert {path.name for path in tmp_path.iterdir()} == kept
    os.utime(archive.path, (0, 0))
    assert archive.options
    assert archive.path.stat().st_mtime > 0, "an archive that is used counts as new"


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    archive = ClassArchive(tmp_path)
    assert archive.options == ()
    with pytest.raises(NoArchive, match="No class archive can be stored: there is no Java, or other users can write"):
        Recording(archive)


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    archive = ClassArchive(tmp_path / "cache")
    assert (archive.path, archive.exists(), archive.options) == (None, False, ())


def test_the_cache_is_in_the_cache_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/oncebus")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "oncebus"
