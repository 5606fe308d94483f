"""The copies of a ledger's files on a machine are limited, verified, and deleted when they are no longer needed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncebus.ledger import CorruptRun, Generation, Ledger, Owner, StorageError, Writer, ledger_files
from oncebus.ledger import copies as copies_module
from oncebus.ledger.copies import FileCopies
from oncebus.ledger.object_place import parse_place
from oncebus.ledger.object_storage import ObjectStorage
from oncebus.ledger.storage import Stamp, Storage
from tests.histories import SECOND, START, rows_of
from tests.reference import Message

DAY = 86_400 * SECOND
WRITER = Writer("aa", "query", Owner.this_process())


def kept(cache: Path, name: str = "") -> list[Path]:
    return sorted(path for path in cache.rglob(f"{name}*") if path.is_file())


class Machine:
    """A computer with its own cache, which uses the ledger."""

    def __init__(self, remote: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = cache
        self._environment = monkeypatch
        self._storage = ObjectStorage(parse_place(remote), remote)
        self._opened: ledger_files._Opened = ({}, {}, {})

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        self._environment.setenv("ONCEBUS_LEDGER_CACHE", str(self.cache))
        ledger = Ledger(self._storage)
        ledger._open_runs, ledger._known_generations, ledger._descriptions = self._opened
        yield ledger

    def judge(self, generation: Generation, batch: int) -> list[bool]:
        """Judge one new key, and one key of the first batch."""
        messages = [Message(f"k{batch}", START + batch, batch, DAY), Message("k0", START + batch, batch, DAY)]
        with self.ledger() as ledger:
            rows = rows_of(messages[: 1 if batch == 0 else 2])
            return [bool(it) for it in ledger.judge(rows, generation, batch, part=0, parts=1, clock=2**62).is_duplicate]


@pytest.fixture
def machine(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Machine]:
    return lambda name: Machine(remote, tmp_path / name, monkeypatch)


@pytest.fixture
def ledger_of_two_runs(machine: Callable[[str], Machine]) -> tuple[Machine, Generation]:
    here = machine("here")
    with here.ledger() as ledger:
        generation = ledger.join(WRITER, 0)
    assert here.judge(generation, 0) == [False]
    assert here.judge(generation, 1) == [False, True]
    return here, generation


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "gone", "folder gone"])
def test_a_damaged_copy_is_fetched_again(
    ledger_of_two_runs: tuple[Machine, Generation], machine: Callable[[str], Machine], damage: str
) -> None:
    here, generation = ledger_of_two_runs
    [copy] = kept(here.cache, "run-1.0-")
    good = copy.read_bytes()
    match damage:
        case "empty":
            copy.write_bytes(b"")
        case "cut":
            copy.write_bytes(good[:-1])
        case "flipped":
            copy.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        case "gone":
            copy.unlink()
        case "folder gone":
            for path in kept(here.cache):
                path.unlink()
            for folder in sorted(here.cache.rglob("*"), reverse=True):
                folder.rmdir()
    # A new process has no open runs.
    assert machine("here").judge(generation, 2) == [False, True]
    [copy] = kept(here.cache, "run-1.0-")
    assert copy.read_bytes() == good


@pytest.mark.parametrize("name", ["generation-", "ledger.json"])
def test_a_copy_without_a_checksum_is_fetched_again_if_it_was_cut(machine: Callable[[str], Machine], name: str) -> None:
    def look() -> Generation:
        """Read like a process that has just started."""
        with machine("here").ledger() as ledger:
            ledger.describe_or_check(["key string"])
            ledger.join(WRITER, 0)
            return ledger.join(WRITER, 0)

    look()
    before = look()
    [copy] = kept(machine("here").cache, name)
    copy.write_bytes(b"")
    assert look() == before


def test_a_damaged_file_in_the_store_is_not_hidden(
    ledger_of_two_runs: tuple[Machine, Generation], machine: Callable[[str], Machine]
) -> None:
    here, generation = ledger_of_two_runs
    with here.ledger() as ledger:
        [name] = [name for name in ledger._storage.names() if name.startswith("run-1.0-")]
        good = bytes(ledger._storage.read(name))
        ledger._storage.publish(name, [good[:-1], bytes([good[-1] ^ 1])])
    with pytest.raises(CorruptRun, match="is corrupt: its checksum is"):
        machine("here").judge(generation, 2)


def test_copies_from_before_a_reboot_are_not_read(
    ledger_of_two_runs: tuple[Machine, Generation],
    machine: Callable[[str], Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A power cut may leave a copy with the right size but wrong content, beside a marker that says it is verified."""
    here, generation = ledger_of_two_runs
    for copy in kept(here.cache):
        copy.write_bytes(bytes(copy.stat().st_size))
        copy.with_name(copy.name + ".verified").touch()
    monkeypatch.setattr("oncebus.ledger.copies._MARKED_ABOVE_BYTES", 0)
    monkeypatch.setattr(copies_module, "_boot", lambda: "another start")
    assert machine("here").judge(generation, 2) == [False, True]


def test_machines_drop_copies_of_files_that_another_has_deleted(
    ledger_of_two_runs: tuple[Machine, Generation], machine: Callable[[str], Machine]
) -> None:
    """One machine writes, merges and deletes. The other has its own process and cache, and only reads."""
    here, generation = ledger_of_two_runs
    there = machine("there")
    most = 0
    for batch in range(2, 40):
        assert here.judge(generation, batch) == [False, True]
        with here.ledger() as ledger:
            ledger.tidy(generation, batch, part=0, parts=1)
        assert there.judge(generation, batch + 1) == [False, True]
        most = max(most, len(kept(there.cache, "run-")))
    with there.ledger() as ledger:
        runs = {name for name in ledger._storage.names() if name.startswith("run-")}
    copies = {path.name.partition(".run.")[0] + ".run" for path in kept(there.cache, "run-")}
    assert copies <= runs
    # There were more than forty.
    assert most < 30


def test_a_new_process_drops_copies_of_files_that_were_deleted(
    ledger_of_two_runs: tuple[Machine, Generation], machine: Callable[[str], Machine]
) -> None:
    here, _ = ledger_of_two_runs
    with machine("elsewhere").ledger() as ledger:
        ledger._storage.delete([name for name in ledger._storage.names() if name.startswith("run-")])
    assert kept(here.cache, "run-")
    with machine("here").ledger() as ledger:
        ledger.summary()
    assert not kept(here.cache, "run-")


def test_the_total_size_of_copies_is_limited(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used go first, those in use stay, and those that were unused for long always go."""
    monkeypatch.setenv("ONCEBUS_LEDGER_CACHE_SIZE", "100 kB")
    content, now = b"x" * 20_000, time.time()
    ledgers = [FileCopies(f"s3://bucket/{number}") for number in range(2)]

    def keep(at: int, age: float) -> None:
        stamp = Stamp(len(content), 0, f"tag {at}")
        assert bytes(ledgers[at % 2].keep(f"run-{at:02}", stamp, [content])) == content
        [path] = kept(cache, f"run-{at:02}")
        os.utime(path, (now - age, now - age))

    for at in range(20):
        keep(at, age=10_000 - at)
    names = sorted(path.name[:6] for path in kept(cache))
    assert names == [f"run-{at:02}" for at in range(15, 20)]
    keep(20, age=8 * 86_400)
    for at in range(21, 31):
        keep(at, age=1)
    # Some process may have mapped any of these.
    assert sorted(path.name[:6] for path in kept(cache)) == [f"run-{at:02}" for at in range(21, 31)]


def test_a_copy_that_is_used_stays_in_use(cache: Path) -> None:
    copies, stamp = FileCopies("s3://bucket/ledger"), Stamp(3, 0, "tag")
    copies.keep("run", stamp, [b"abc"])
    [path] = kept(cache)
    os.utime(path, (1, 1))
    copies._touched -= 100
    copies.sweep({"run": stamp})
    assert time.time() - path.stat().st_mtime < 3600
    os.utime(path, (1, 1))
    assert copies.find("run", stamp) is not None
    assert time.time() - path.stat().st_mtime < 3600


def test_a_ledger_works_without_room_in_the_cache(remote: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: FileCopies, name: str, stamp: Stamp, pieces: Iterator[memoryview]) -> memoryview:
        next(pieces)
        raise OSError(28, "No space left on device")

    storage: Storage = ObjectStorage(parse_place(remote), remote)
    storage.publish("one", [b"abc"])
    monkeypatch.setattr(FileCopies, "keep", no_room)
    assert bytes(storage.read("one")) == b"abc"


def test_a_cache_that_others_could_write_is_refused(remote: str, cache: Path) -> None:
    storage = ObjectStorage(parse_place(remote), remote)
    storage.publish("one", [b"abc"])
    assert bytes(storage.read("one")) == b"abc"
    cache.chmod(0o777)
    with pytest.raises(StorageError, match=r"is open to another user\. Remove it or set ONCEBUS_LEDGER_CACHE"):
        storage.read("one")


def test_a_limit_that_is_not_a_size(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEBUS_LEDGER_CACHE_SIZE", "much")
    with pytest.raises(StorageError, match=r"ONCEBUS_LEDGER_CACHE_SIZE has value 'much'\. Not a size"):
        FileCopies("s3://bucket/ledger").keep("run", Stamp(3, 0), [b"abc"])
