from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from histories import SECOND, START, rows_of, verdicts_of
from oncebus.ledger import CorruptRun, Ledger, Owner, StorageError, Writer
from oncebus.ledger.storage import ArrowStorage, LocalStorage, Storage, storage_at
from reference import Message, Reference


@pytest.fixture(params=["local", "arrow"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A local folder, and one behind pyarrow that could as well be an object store."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    if request.param == "local":
        return LocalStorage(str(tmp_path / "ledger"))
    (tmp_path / "root").mkdir()
    return ArrowStorage(
        fs.SubTreeFileSystem(str(tmp_path / "root"), fs.LocalFileSystem()), "a/ledger", "sub://a/ledger"
    )


def test_files(storage: Storage) -> None:
    assert storage.names() == {}
    storage.publish("one", [b"ab", memoryview(b"c")])
    storage.publish("empty", [])
    assert {name: stamp.size for name, stamp in storage.names().items()} == {"one": 3, "empty": 0}
    assert bytes(storage.read("one")) == b"abc"
    storage.publish("one", [b"other"])
    assert bytes(storage.read("one")) == b"other"
    storage.delete(["one", "never there"])
    assert list(storage.names()) == ["empty"]
    with pytest.raises(FileNotFoundError):
        storage.read("one")


def test_what_was_read_holds_no_file_open(storage: Storage) -> None:
    storage.publish("one", [b"abc"])
    before = len(os.listdir("/proc/self/fd"))
    kept = [storage.read("one") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert {bytes(data) for data in kept} == {b"abc"}


def test_a_ledger_on_it_judges_like_the_reference(storage: Storage) -> None:
    ledger, reference = Ledger(storage), Reference()
    ledger.describe_or_check(["key string"])
    for number in range(30):
        messages = [
            Message(f"k{(number * at) % 17}", START + number * 7 * SECOND, number * 10 + at, 60 * SECOND)
            for at in range(5)
        ]
        generation = ledger.join(Writer("a", "query", Owner.this_process()), number)
        verdicts = ledger.judge(rows_of(messages), generation, number, parts=1, clock=2**62)
        assert verdicts_of(messages, verdicts) == reference.batch(messages, 2**62)
        ledger.tidy(generation, number, part=0, parts=1)
    summary = ledger.summary()
    assert summary.runs < 20
    assert summary.horizon == reference.horizon


def test_a_file_is_compared_with_its_checksum_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a large one, which is compared once on each machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("oncebus.ledger.storage._VERIFIED_ABOVE_BYTES", 100)
    folder = tmp_path / "ledger"
    messages = [Message(f"k{at}", START, at, SECOND) for at in range(50)]
    ledger = Ledger.open(folder)
    generation = ledger.join(Writer("a", "query", Owner.this_process()), 0)
    ledger.judge(rows_of(messages), generation, 0, parts=1, clock=2**62)
    ledger.judge(rows_of(messages), generation, 1, parts=1, clock=2**62)
    [run] = folder.glob("run-1.0-*")
    good = run.read_bytes()
    run.write_bytes(good[:-1] + b"\xff")
    os.utime(run, ns=(1, 1))
    with pytest.raises(CorruptRun, match="is corrupt: its checksum is"):
        ledger.judge(rows_of(messages), generation, 2, parts=1, clock=2**62)


def test_a_scratch_folder_that_others_could_have_filled_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "root").mkdir()
    below = fs.SubTreeFileSystem(str(tmp_path / "root"), fs.LocalFileSystem())
    storage = ArrowStorage(below, "ledger", "sub://ledger")
    storage.publish("one", [b"abc"])
    assert bytes(storage.read("one")) == b"abc"
    (tmp_path / f"oncebus-{os.getuid()}").chmod(0o777)
    with pytest.raises(StorageError, match="belongs to or is open to another user"):
        storage.read("one")


def test_locations(tmp_path: Path) -> None:
    assert isinstance(storage_at(tmp_path), LocalStorage)
    assert isinstance(storage_at(tmp_path.as_uri()), LocalStorage)
    assert storage_at("relative").location == str(Path("relative").absolute())
    with pytest.raises(StorageError, match="Ledger location 'nope://here' cannot be opened"):
        storage_at("nope://here")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be read: Not a directory"):
        LocalStorage(str(tmp_path / "file")).names()
    with pytest.raises(StorageError, match=r"cannot be written: .* \('x'\)"):
        LocalStorage(str(tmp_path / "file")).publish("x", [b""])
    assert list(tmp_path.glob(".tmp-*")) == []
