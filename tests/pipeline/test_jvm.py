from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark import SparkContext

from oncebus.pipeline import jvm
from oncebus.pipeline.jvm import ClassArchive, default_cache


def ended(*, well: bool, leaves: bytes | None = None, archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Java end, as if it had run with the archive's options."""

    def end() -> bool:
        if leaves is not None:
            path = archive.options[0].split("=", 1)[1].strip('"')
            Path(path).write_bytes(leaves)
        return well

    monkeypatch.setattr(jvm, "_has_ended_well", end)
    archive.close()


def test_the_first_run_that_ends_in_peace_leaves_an_archive_and_the_next_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my cache"
    first = ClassArchive(folder)
    assert first.options[0].startswith(f'-XX:ArchiveClassesAtExit="{folder}/.')
    ended(well=True, leaves=b"classes", archive=first, monkeypatch=monkeypatch)
    second = ClassArchive(folder)
    (kept,) = folder.iterdir()
    assert kept.read_bytes() == b"classes"
    assert second.options[0] == f'-XX:SharedArchiveFile="{kept}"'
    ended(well=True, archive=second, monkeypatch=monkeypatch)
    assert list(folder.iterdir()) == [kept]


@pytest.mark.parametrize(("well", "leaves"), [(False, b"half"), (True, None)])
def test_an_archive_that_was_not_finished_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, well: bool, leaves: bytes | None
) -> None:
    ended(well=well, leaves=leaves, archive=ClassArchive(tmp_path), monkeypatch=monkeypatch)
    assert list(tmp_path.iterdir()) == []


class _Java:
    """A Java that ends at once, and notes what has been said by then."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.proc = self.stdin = self
        self.heard: list[str] = []
        self._caplog = caplog

    def shutdown(self) -> None:
        pass

    def close(self) -> None:
        pass

    def wait(self, _seconds: float) -> int:
        self.heard += self._caplog.messages
        return 0


def test_that_an_archive_is_written_is_said_before_it_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)
    archive = ClassArchive(tmp_path)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    java = _Java(caplog)
    monkeypatch.setattr(SparkContext, "_gateway", java)
    with caplog.at_level("INFO", logger=jvm.log.name):
        archive.close()
    assert java.heard == ["The classes of Java are being saved, for quicker starts: stopping takes up to a minute"]


def test_a_java_that_does_not_come_to_its_end_leaves_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(_Java):
        def wait(self, seconds: float) -> int:
            raise subprocess.TimeoutExpired("java", seconds)

    tmp_path.chmod(0o700)
    archive = ClassArchive(tmp_path)
    Path(archive.options[0].split("=", 1)[1].strip('"')).write_bytes(b"half")
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_gateway", Slow(caplog))
    archive.close()
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_an_archive_already_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)
    ended(well=True, leaves=b"classes", archive=ClassArchive(tmp_path), monkeypatch=monkeypatch)
    monkeypatch.undo()
    monkeypatch.setattr(SparkContext, "_gateway", _Java(caplog))
    with caplog.at_level("INFO", logger=jvm.log.name):
        ClassArchive(tmp_path).close()
    assert caplog.messages == []


def test_archives_of_other_versions_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"spark-{number}.jsa").touch()
    (tmp_path / "notes").touch()
    ended(well=True, leaves=b"new", archive=ClassArchive(tmp_path), monkeypatch=monkeypatch)
    assert len(list(tmp_path.glob("*.jsa"))) == 2
    assert (tmp_path / "notes").exists()
    assert "SharedArchiveFile" in ClassArchive(tmp_path).options[0]


def test_archives_of_runs_that_were_killed_do_not_pile_up(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for number in range(5):
        (tmp_path / f".{number}.jsa").write_bytes(b"")
    ClassArchive(tmp_path)
    assert len(list(tmp_path.glob(".*.jsa"))) == 2


def test_nothing_is_taken_from_a_folder_that_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert ClassArchive(tmp_path).options == ()


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    archive = ClassArchive(tmp_path / "cache")
    assert archive.options == ()
    archive.close()


def test_the_cache_is_where_the_user_keeps_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/oncebus")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "oncebus"
