"""Tests the trial of a ledger's place on a local disk and on an object store. Nothing may be left behind."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.doctor.findings import Status
from oncebus.doctor.places import writing_finding
from oncebus.doctor.trial import (
    Trial,
    close_place,
    leave,
    list_place,
    look_for,
    new_name,
    open_place,
    try_place,
)
from oncebus.ledger import StorageError
from oncebus.ledger.storage import storage_at
from tests.object_stores import Server
from tests.users import as_an_ordinary_user


def test_a_good_folder(tmp_path: Path) -> None:
    trial = try_place(str(tmp_path))
    assert (trial.step, trial.problem) == ("", "")
    # The file's time comes from the same clock, which the kernel rounds down to its own ticks.
    assert trial.low <= 0.0
    assert trial.high >= -0.1
    assert trial.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_not_disturbed(tmp_path: Path) -> None:
    leave(str(tmp_path), new_name(), b"x")
    # A ledger does not list the files of the doctor, even if a killed one has left some.
    assert storage_at(str(tmp_path)).names() == {}


def test_a_folder_that_cannot_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with as_an_ordinary_user():
            trial = try_place(str(folder))
            with pytest.raises(StorageError, match="cannot be created: Permission denied"):
                open_place(str(folder / "a" / "ledger"))
        folder.chmod(0o700)
    assert trial.step == "write"
    assert f"Ledger folder '{folder}' cannot be written: Permission denied" in trial.problem
    found = writing_finding(str(folder), {"the driver": Trial(), "'one'": trial})
    assert found.status is Status.FAILED
    assert found.text.startswith(f"'one' cannot write files at '{folder}': Ledger folder")
    assert found.text.endswith("Give a folder that this user may write, on every machine.")


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    trial = try_place(str(tmp_path))
    assert trial.step == "claim"
    found = writing_finding(str(tmp_path), {"the driver": trial})
    assert found.status is Status.FAILED
    assert "Mounts of object stores often lack links" in found.advice
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_whose_claims_overwrite_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", os.replace)
    trial = try_place(str(tmp_path))
    assert (trial.step, trial.problem) == ("claim", "a second claim of the same name succeeded")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    trial = try_place(str(tmp_path))
    assert trial.step == "write"
    assert "Input/output error" in trial.problem
    assert list(tmp_path.iterdir()) == []


def test_new_folders_are_removed_unless_somebody_uses_them(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    made = open_place(str(place))
    assert made == [str(place), str(place.parent)]
    assert place.is_dir()
    close_place(str(place), [], made)
    assert list(tmp_path.iterdir()) == []

    made = open_place(str(place))
    (place / "ledger.json").touch()
    close_place(str(place), [], made)
    assert (place / "ledger.json").exists()
    assert open_place(str(place)) == []


def test_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be created: Not a directory"):
        open_place(str(tmp_path / "file"))


def test_looking_for_a_file(tmp_path: Path) -> None:
    place, name = str(tmp_path), new_name()
    list_place(place)
    assert not look_for(place, name, b"x", patience=0.0).is_seen
    leave(place, name, b"x")
    sight = look_for(place, name, b"x")
    assert (sight.is_seen, sight.seconds) == (True, 0.0)
    assert not look_for(place, name, b"another", patience=0.0).is_seen
    close_place(place, [name], [])
    assert list(tmp_path.iterdir()) == []
    assert not look_for(str(tmp_path / "missing"), name, b"x", patience=0.0).is_seen


def test_a_file_that_appears_late(tmp_path: Path) -> None:
    place, name = str(tmp_path), new_name()
    timer = threading.Timer(0.3, leave, (place, name, b"x"))
    timer.start()
    sight = look_for(place, name, b"x", patience=60.0)
    timer.join()
    assert sight.is_seen
    assert sight.seconds > 0


def test_an_object_store(
    object_servers: Callable[[str], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = object_servers("s3")
    for variable, value in (server.environment | {"ONCEBUS_LEDGER_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(variable, value)
    place = server.new_location()
    assert open_place(place) == []
    trial = try_place(place)
    assert (trial.step, trial.problem) == ("", "")
    assert trial.low <= 0.0 <= trial.high
    name = new_name()
    leave(place, name, b"x")
    assert look_for(place, name, b"x").is_seen
    close_place(place, [name], [])
    assert storage_at(place).names() == {}
    assert [path for path in (tmp_path / "cache").rglob("*doctor*") if path.is_file()] == []

    wrong = place.replace("ledgers", "no-such-bucket")
    assert try_place(wrong).step == "write"
    assert "NoSuchBucket" in look_for(wrong, name, b"x").problem
