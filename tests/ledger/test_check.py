"""Every kind of damage to a ledger's files is found, and named in one line. Nothing else is a problem."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.ledger import Ledger, LedgerMismatch, Writer
from oncebus.ledger.aside_marks import open_mark
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import parse_run_names
from oncebus.ledger.storage import storage_at
from tests.histories import SECOND, START
from tests.ledger.owners import HERE
from tests.ledger.test_forgetting import accepted, rows_of
from tests.ledger.test_generations import write
from tests.ledger.test_ledger_properties import eager


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger with three batches, of which the first two are merged."""
    ledger = Ledger.open(tmp_path / "ledger")
    with eager(1, 2):
        for number in range(3):
            accepted(ledger, [f"k{number}", f"kk{number}"], START + number * SECOND)
    return ledger


def state(folder: str | Path) -> dict[str, tuple[int, int]]:
    return {entry.name: (entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(folder)}


def test_an_intact_ledger_has_no_problems_and_is_not_touched(ledger: Ledger) -> None:
    before = state(ledger.location)
    found = ledger.check()
    assert (found.problems, found.notes, found.leftovers, found.is_intact) == ([], [], [], True)
    assert (found.runs, found.ids) == (4, 6)
    assert found.bytes == sum(path.stat().st_size for path in Path(ledger.location).glob("*.run"))
    assert state(ledger.location) == before


def run_file(folder: Path) -> Path:
    return min(folder.glob("run-1.0-2.0-*.run"))


def flip(folder: Path) -> str:
    path = run_file(folder)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    return f"{path.name}: is corrupt: its checksum is "


def truncate(folder: Path) -> str:
    path = run_file(folder)
    path.write_bytes(path.read_bytes()[:-1])
    return f"{path.name}: holds "


def empty(folder: Path) -> str:
    path = run_file(folder)
    path.write_bytes(b"")
    return f"{path.name}: is truncated: it has 0 bytes"


def replace_by_another(folder: Path) -> str:
    path = run_file(folder)
    shutil.copy(max(folder.glob("run-3.0-*.run")), path)
    return f"{path.name}: has 1 entries, but 2 in its name."


def make_a_folder(folder: Path) -> str:
    path = run_file(folder)
    path.unlink()
    path.mkdir()
    return f"{path.name}: Ledger file '{path}' cannot be read: Is a directory"


def rename(folder: Path) -> str:
    path = run_file(folder)
    path.rename(folder / "run-1.run")
    return "run-1.run: does not have the name of a run, so its keys do not count."


def overlap(folder: Path) -> str:
    path = run_file(folder)
    other = path.name.replace("run-1.0-2.0", "run-2.0-3.0")
    shutil.copy(path, folder / other)
    return f"{other}: overlaps with {path.name}, so keys count twice"


def lose_a_generation(folder: Path) -> str:
    (folder / "generation-000002.json").unlink()
    return "generation-000002.json: is missing, so the keys of its runs do not count."


def lose_the_newest_generation(folder: Path) -> str:
    """A query's generation, or one that was confirmed: that of a batch would look like an open batch."""
    write(Ledger.open(folder), Writer("bb", "query", HERE), 0)
    write(Ledger.open(folder), Writer("bb", "query", HERE), 1)
    (folder / "generation-000004.json").unlink()
    return "generation-000004.json: is missing"


def confirm_a_missing_generation(folder: Path) -> str:
    (folder / "confirmed-000004-0").touch()
    return "generation-000004.json: is missing"


def lose_all_generations(folder: Path) -> str:
    for path in folder.glob("generation-*"):
        path.unlink()
    return "generation-000002.json: is missing"


def tear_a_generation(folder: Path) -> str:
    path = folder / "generation-000002.json"
    path.write_bytes(path.read_bytes()[:20])
    return "generation-000002.json: cannot be read, so no writer can start: "


def misspell_a_generation(folder: Path) -> str:
    path = folder / "generation-000002.json"
    path.write_text(path.read_text().replace('"number": 2', '"number": "2"'))
    return "generation-000002.json: cannot be read, so no writer can start: "


def rename_a_generation(folder: Path) -> str:
    shutil.copy(folder / "generation-000001.json", folder / "generation-000002.json")
    return "generation-000002.json: claims generation 1, not that of its name."


def lose_the_description(folder: Path) -> str:
    (folder / "ledger.json").unlink()
    return "ledger.json: is missing, so no writer can start."


def tear_the_description(folder: Path) -> str:
    (folder / "ledger.json").write_text("{")
    return f"ledger.json: Ledger '{folder}' has an unreadable 'ledger.json'"


def tear_a_mark(folder: Path) -> str:
    mark = open_mark(4, "aa", 3)
    (folder / mark).write_text("{")
    return f"{mark}: cannot be read, so no writer can tidy."


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        truncate,
        empty,
        replace_by_another,
        make_a_folder,
        rename,
        overlap,
        lose_a_generation,
        lose_the_newest_generation,
        confirm_a_missing_generation,
        lose_all_generations,
        tear_a_generation,
        misspell_a_generation,
        rename_a_generation,
        lose_the_description,
        tear_the_description,
        tear_a_mark,
    ],
)
def test_damage_is_found(ledger: Ledger, damage: Callable[[Path], str]) -> None:
    expected = damage(Path(ledger.location))
    before = state(ledger.location)
    found = ledger.check()
    assert not found.is_intact
    lines = [str(problem) for problem in found.problems]
    assert any(line.startswith(expected) for line in lines), lines
    assert not any("\n" in line for line in lines)
    assert state(ledger.location) == before


def test_other_files_and_open_batches_are_no_problems(ledger: Ledger) -> None:
    folder = Path(ledger.location)
    (folder / "notes.txt").touch()
    (folder / "backup").mkdir()
    (folder / ".tmp-new").touch()
    (folder / ".tmp-old").touch()
    os.utime(folder / ".tmp-old", (0, 0))
    opened = ledger.batch()
    opened.begin(lambda _: False, HERE)
    ledger.judge(rows_of(ledger, ["x"], START), opened.generation, 0, part=0, parts=1, clock=2**62)
    [run] = [str(run) for run in parse_run_names(os.listdir(folder)) if run.last.generation == 4]
    found = ledger.check()
    assert found.problems == []
    assert [str(note) for note in found.notes] == [
        "backup: is not a file of a ledger, and is ignored.",
        "notes.txt: is not a file of a ledger, and is ignored.",
        f"{run}: belongs to a batch that is open, or whose process died. It does not count.",
    ]
    assert found.leftovers == [".tmp-old"]


def test_runs_that_a_writer_deletes_meanwhile_are_no_problem(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted(ledger, ["new"])
    read_part = LocalStorage.read_part

    def late(self: LocalStorage, name: str, begin: int, end: int) -> memoryview:
        if name.endswith(".run"):
            monkeypatch.setattr(LocalStorage, "read_part", read_part)
            Path(ledger.location, name).unlink()
        return read_part(self, name, begin, end)

    monkeypatch.setattr(LocalStorage, "read_part", late)
    found = ledger.check()
    assert found.problems == []
    assert found.runs < 6


def test_a_long_life_has_no_problems(tmp_path: Path) -> None:
    """Restarts, asides of ended writers and old generations that were deleted."""
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.describe_or_check(["key string"])
    for start in range(90):
        write(ledger, Writer(f"{start:02x}", "query", HERE, follows=start), start)
        ledger.tidy(ledger.join(Writer(f"{start:02x}", "query", HERE), start), start, part=0, parts=1)
        if start % 9 == 0:
            assert ledger.check().problems == []
    assert not (tmp_path / "ledger" / "generation-000001.json").exists()


def test_a_place_without_a_ledger_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerMismatch, match=rf"There is no ledger at '{tmp_path}/none'\.$"):
        Ledger.open(tmp_path / "none").check()
    (tmp_path / "data.csv").touch()
    with pytest.raises(LedgerMismatch, match=r"is not a ledger: it holds 'data\.csv' but no 'ledger\.json'"):
        Ledger.open(tmp_path).check()


def test_show_and_check_on_each_kind_of_storage(location: str) -> None:
    ledger = Ledger.open(location)
    with eager(1, 2):
        for number in range(3):
            accepted(ledger, [f"k{number}", f"kk{number}"], START + number * SECOND)
    overview = ledger.overview()
    assert (overview.summary.ids, [(day.ids, day.reaches) for day in overview.days]) == (6, [(6, "")])
    assert ledger.check().problems == []
    assert ledger.summary().runs == 4
    assert [each.time for each in ledger.find("k1")] == [START + SECOND]
    # What counts is the file in the store, not the copy on this machine.
    storage = storage_at(location)
    name = str(ledger.listing().visible()[0])
    good = bytes(ledger._storage.read(name))
    storage.publish(name, [good[:-1] + bytes([good[-1] ^ 1])])
    assert [problem.file for problem in ledger.check().problems] == [name]
    storage.publish(name, [good])
    assert accepted(ledger, ["k0", "kk2", "new"]) == ["new"]
    assert ledger.check().is_intact
    assert storage.read_part(name, 8, 16) == good[8:16]
    assert storage.read_part(name, len(good) - 2, len(good) + 5) == good[-2:]
    with pytest.raises(FileNotFoundError):
        storage.read_part("nothing", 0, 5)
