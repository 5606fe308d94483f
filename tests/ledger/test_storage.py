"""The contract of a storage, on a folder, on S3 and on Azure Blob Storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncebus.ledger import CorruptRun, Ledger, Owner, StorageError, Writer
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.storage import Stamp, Storage, list_until_agreed, storage_at
from tests.histories import SECOND, START, rows_of, verdicts_of
from tests.reference import Message, Reference


@pytest.fixture
def storage(location: str) -> Storage:
    return storage_at(location)


def test_files(storage: Storage) -> None:
    assert storage.names() == {}
    storage.publish("one", [b"ab", memoryview(b"c")])
    storage.publish("empty", [])
    assert {name: stamp.size for name, stamp in storage.names().items()} == {"one": 3, "empty": 0}
    assert bytes(storage.read("one")) == b"abc"
    assert bytes(storage.read("empty")) == b""
    storage.publish("one", [b"xyz"])
    assert bytes(storage.read("one")) == b"xyz"
    storage.names()
    storage.publish("one", [b"other"])
    assert bytes(storage.read("one")) == b"other"
    storage.delete(["never there", "one", "one"])
    assert list(storage.names()) == ["empty"]
    with pytest.raises(FileNotFoundError):
        storage.read("one")
    storage.delete([])


def test_a_name_is_claimed_once(storage: Storage) -> None:
    assert storage.publish_new("claim", [b"o", b"ne"])
    assert not storage.publish_new("claim", [b"two"])
    assert bytes(storage.read("claim")) == b"one"
    storage.delete(["claim"])
    assert storage.publish_new("claim", [b"two"])
    assert list(storage.names()) == ["claim"]


def test_reading_keeps_no_file_open(storage: Storage) -> None:
    def open_files() -> list[str]:
        """Return the open files, without connections to the store and the files of a broker for other tests."""
        links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        return sorted(name for link in links if link.is_file() and "/broker/" not in (name := os.readlink(link)))

    storage.publish("one", [b"abc"])
    before = open_files()
    kept = [storage.read("one") for _ in range(20)]
    assert open_files() == before
    assert {bytes(data) for data in kept} == {b"abc"}


def test_a_ledger_on_the_storage_judges_like_the_reference(storage: Storage) -> None:
    ledger, reference = Ledger(storage), Reference()
    ledger.describe_or_check(["key string"])
    for number in range(30):
        messages = [
            Message(f"k{(number * at) % 17}", START + number * 7 * SECOND, number * 10 + at, 60 * SECOND)
            for at in range(5)
        ]
        generation = ledger.join(Writer("a", "query", Owner.this_process()), number)
        verdicts = ledger.judge(rows_of(messages), generation, number, part=0, parts=1, clock=2**62)
        assert verdicts_of(messages, verdicts) == reference.batch(messages, 2**62)
        ledger.tidy(generation, number, part=0, parts=1)
    summary = ledger.summary()
    assert summary.runs < 20
    assert summary.horizon == reference.horizon


def test_a_file_is_compared_with_its_checksum_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file too, which is compared once on each machine."""
    monkeypatch.setattr("oncebus.ledger.copies._MARKED_ABOVE_BYTES", 100)
    folder = tmp_path / "ledger"
    messages = [Message(f"k{at}", START, at, SECOND) for at in range(50)]
    ledger = Ledger.open(folder)
    generation = ledger.join(Writer("a", "query", Owner.this_process()), 0)
    ledger.judge(rows_of(messages), generation, 0, part=0, parts=1, clock=2**62)
    ledger.judge(rows_of(messages), generation, 1, part=0, parts=1, clock=2**62)
    [run] = folder.glob("run-1.0-*")
    good = run.read_bytes()
    run.write_bytes(good[:-1] + b"\xff")
    os.utime(run, ns=(1, 1))
    with pytest.raises(CorruptRun, match="is corrupt: its checksum is"):
        ledger.judge(rows_of(messages), generation, 2, part=0, parts=1, clock=2**62)


def test_markers_are_deleted_with_their_files_whoever_deletes_them(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncebus.ledger.copies._MARKED_ABOVE_BYTES", 0)
    here, elsewhere = (LocalStorage(str(tmp_path / "ledger")) for _ in range(2))
    for name in ("one", "two", "three"):
        here.publish(name, [b"abc"])
    for name in ("one", "two"):
        here.set_verified(name, here.names()[name])
        assert here.is_verified(name, here.names()[name])
    Path(here.location, "one").unlink()
    elsewhere.set_verified("three", here.names()["three"])
    assert sorted(path.name.partition(".")[0] for path in cache.rglob("*.verified")) == ["three", "two"]


def test_locations(tmp_path: Path) -> None:
    assert isinstance(storage_at(tmp_path), LocalStorage)
    assert storage_at(tmp_path.as_uri()).location == str(tmp_path)
    assert storage_at("file:/a%20b/c/").location == "/a b/c"
    assert storage_at("relative").location == str(Path("relative").absolute())
    with pytest.raises(StorageError, match="'file://host/a' is not a path on this machine"):
        storage_at("file://host/a")
    with pytest.raises(StorageError, match=r"'file://…@host/a\?…' is not a path on this machine"):
        storage_at("file://user:hush@host/a?sig=hush")


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be read: Not a directory"):
        LocalStorage(str(tmp_path / "file")).names()
    with pytest.raises(StorageError, match=r"cannot be written: .* \('x'\)"):
        LocalStorage(str(tmp_path / "file")).publish("x", [b""])
    assert list(tmp_path.glob(".tmp-*")) == []


@pytest.mark.parametrize(
    ("scans", "needed"),
    [
        (["a", "a"], 2),
        (["a", "ab"], 2),  # another task has published
        (["ab", "b", "bc"], 3),  # the scan without "a" may have missed the run that "a" was merged into
        (["ab", "b", "", "c"], 4),
    ],
)
def test_a_listing_is_repeated_only_if_a_file_has_gone_meanwhile(scans: list[str], needed: int) -> None:
    answers = [{name: Stamp(1, 1) for name in names} for names in scans]
    left = list(answers)
    assert list_until_agreed(lambda: left.pop(0)) == answers[needed - 1]
    assert len(answers) - len(left) == needed


def test_a_listing_ends_while_others_publish() -> None:
    found: dict[str, Stamp] = {}

    def scan() -> dict[str, Stamp]:
        found[f"run {len(found)}"] = Stamp(1, 1)
        return dict(found)

    assert len(list_until_agreed(scan)) == 2


def test_a_claim_is_not_seen_without_the_runs_before_it() -> None:
    """A batch joins during the second scan, which has passed the place of the runs in the folder."""
    run, claim = {"run-1": Stamp(1, 1)}, {"generation-000002.json": Stamp(1, 1)}
    left = [{}, claim, run | claim, run | claim]
    assert list_until_agreed(lambda: left.pop(0)) == run | claim
