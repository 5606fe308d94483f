from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from oncebus.model.entities import Catalogue, CatalogueFiles, Queue
from oncebus.model.entities.catalogue_files import CatalogueFileError
from oncebus.model.entities.catalogue_json import catalogue_to_json

ONE = Catalogue().create(Queue(name="a"), 1)
TWO = ONE.create(Queue(name="b"), 2)
FIVE = TWO.delete(Queue(name="a")).delete(Queue(name="b")).create(Queue(name="a"), 3)


@pytest.fixture
def files(tmp_path: Path) -> CatalogueFiles:
    return CatalogueFiles(tmp_path / "data")


def test_an_empty_folder_has_no_versions(files: CatalogueFiles) -> None:
    assert files.latest() is None
    assert files.versions() == []
    files.delete_below(9)
    with pytest.raises(
        CatalogueFileError, match=r"Version 1 of the catalogue is missing: no file '.*000000000001\.json'"
    ):
        files.load(1)


def test_versions_are_kept_and_found(files: CatalogueFiles, tmp_path: Path) -> None:
    for catalogue in (ONE, TWO, FIVE):
        files.publish(catalogue)
    assert sorted(os.listdir(tmp_path / "data")) == [
        "000000000001.json",
        "000000000002.json",
        "000000000005.json",
    ]
    other = CatalogueFiles(tmp_path / "data")
    assert (other.latest(), other.load(1), other.load(2)) == (FIVE, ONE, TWO)


def test_an_empty_catalogue_can_be_published(files: CatalogueFiles) -> None:
    files.publish(Catalogue())
    assert files.latest() == Catalogue()


@pytest.mark.parametrize("catalogue", [ONE, TWO])
def test_versions_only_go_up(files: CatalogueFiles, catalogue: Catalogue) -> None:
    files.publish(TWO)
    with pytest.raises(CatalogueFileError, match=f"Version {catalogue.version} .* already at version 2"):
        files.publish(catalogue)
    assert files.versions() == [2]


def test_a_version_is_read_once(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    assert files.load(1) is CatalogueFiles(tmp_path / "data").load(1)


def test_a_folder_that_is_created_again_is_not_taken_for_the_old_one(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    assert files.load(1) == ONE
    other = Catalogue().create(Queue(name="elsewhere"), 1)
    path = tmp_path / "data" / "000000000001.json"
    path.rename(path.with_name(".kept"))
    files.publish(other)
    assert files.load(1) == other
    path.unlink()
    with pytest.raises(CatalogueFileError, match="missing"):
        files.load(1)


def test_old_versions_are_deleted_but_never_the_latest(files: CatalogueFiles) -> None:
    for catalogue in (ONE, TWO, FIVE):
        files.publish(catalogue)
    files.delete_below(2)
    assert files.versions() == [2, 5]
    files.delete_below(99)
    assert files.versions() == [5]
    assert files.latest() == FIVE


def test_a_torn_file_is_named(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    path = tmp_path / "data" / "000000000001.json"
    path.write_text(path.read_text()[:-10])
    with pytest.raises(CatalogueFileError, match=r"000000000001\.json' is damaged: it is not complete JSON"):
        files.latest()


def test_a_file_under_the_wrong_number_is_named(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    (tmp_path / "data" / "000000000007.json").write_text(catalogue_to_json(TWO))
    with pytest.raises(CatalogueFileError, match=r"000000000007\.json' holds version 2"):
        files.latest()


def test_a_file_that_is_not_a_version_is_named(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    (tmp_path / "data" / "notes.txt").touch()
    with pytest.raises(CatalogueFileError, match=r"notes\.txt' is not a version of a catalogue"):
        files.latest()


def test_the_leftovers_of_a_dead_writer_are_ignored_and_cleared(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    left = tmp_path / "data" / ".tmp-000000000002.json"
    left.write_text('{"format"')
    assert files.latest() == ONE
    files.publish(TWO)
    assert not left.exists()
    assert files.latest() == TWO


def test_a_failed_write_leaves_nothing_behind(
    files: CatalogueFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.publish(ONE)

    def no_room(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(CatalogueFileError, match=r"000000000002\.json' cannot be written: No space left on device"):
        files.publish(TWO)
    assert os.listdir(tmp_path / "data") == ["000000000001.json"]


def test_a_version_whose_folder_could_not_be_synced_is_not_there_and_can_be_published_again(
    files: CatalogueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.publish(ONE)

    def fails(folder: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("oncebus.values.disk.sync", fails)
        with pytest.raises(CatalogueFileError, match="cannot be written: Input/output error"):
            files.publish(TWO)
    assert files.versions() == [1]
    files.publish(TWO)
    assert files.latest() == TWO


def test_the_file_is_synced_before_it_has_its_name_and_the_folder_after(
    files: CatalogueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.publish(ONE)
    steps: list[str] = []
    fsync, rename = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def recorded_rename(source: Path, target: Path) -> None:
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_rename)
    files.publish(TWO)
    assert steps == ["file", "rename", "folder"]


def test_others_cannot_read_the_keys(files: CatalogueFiles, tmp_path: Path) -> None:
    files.publish(ONE)
    mode = (tmp_path / "data" / "000000000001.json").stat().st_mode
    assert mode & 0o007 == 0


def test_loading_needs_no_spark() -> None:
    unwanted = "('pyspark', 'pyarrow', 'numpy')"
    code = f"import sys, oncebus.model.entities; sys.exit(any(name in sys.modules for name in {unwanted}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
