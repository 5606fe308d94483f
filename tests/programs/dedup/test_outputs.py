"""The protocol of the output folders, without Spark: no matter when a run is killed, the next one succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncebus.programs.dedup import outputs
from oncebus.programs.dedup.outputs import (
    MARKER,
    STATE,
    Marker,
    OutputError,
    OutputFolder,
    Outputs,
    decide,
    decide_follow,
    fingerprint,
    inspect,
)

ARGUMENTS = {"key": ["id"]}


class Killed(BaseException):
    """Stands in for SIGKILL: no code may run in response to it."""


class Ledger:
    """A ledger that commits tokens as the real one commits generations."""

    def __init__(self) -> None:
        self.committed: set[str] = set()

    def has(self, marker: Marker) -> bool:
        return marker.generation is None or marker.generation["token"] in self.committed


def run(
    folders: list[Path], ledger: Ledger, *, wanted: str = "same", overwrite: bool = False, step: Callable[[], None]
) -> Marker:
    """Do one run as the command does. It calls `step` wherever it could be killed. A repeated run accepts no rows."""
    places = Outputs(folders)
    places.__enter__()
    try:
        found = places.find()
        decision = decide(found[0], found[1] if found[1:] else None, wanted, ledger.has, overwrite=overwrite)
        if decision.finished is not None:
            return decision.finished
        step()
        places.start(decision, wanted, ARGUMENTS, "ledger")
        step()
        rows = "" if ledger.committed else "rows"
        for folder in folders:
            staging = places.staging(folder)
            staging.mkdir(parents=True)
            (staging / "part-00000.json").write_text(rows)
            (staging / "_SUCCESS").touch()
            step()
        written = places.publish({"rows": 4}, {"token": places.token})
        step()
        ledger.committed.add(places.token)
        step()
        places.finish(written)
        step()
        return written
    finally:
        places._locks.close()


class Steps:
    """Counts the points where a run can be killed, and kills it at one of them."""

    def __init__(self, die_at: int | None = None) -> None:
        self.passed = 0
        self.die_at = die_at

    def __call__(self) -> None:
        if self.passed == self.die_at:
            raise Killed
        self.passed += 1


def kill_inside_publish(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    for name in ("write_marker", "move_parts", "clear", "_delete", "_remove_staging"):
        original = getattr(outputs, name)

        def guarded(*arguments: Any, _original: Any = original, **named: Any) -> Any:
            steps()
            result = _original(*arguments, **named)
            steps()
            return result

        monkeypatch.setattr(outputs, name, guarded)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "out", tmp_path / "dropped"]


def content(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("part-*")))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_killed_at_any_step_is_repeated_and_counts_once(folders: list[Path], overwrite: bool) -> None:
    deaths = 0
    while True:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            if overwrite:
                folder.mkdir()
                (folder / "old.txt").write_text("old")
        ledger = Ledger()
        steps = Steps(die_at=deaths)
        with pytest.MonkeyPatch.context() as patch:
            kill_inside_publish(patch, steps)
            try:
                run(folders, ledger, overwrite=overwrite, step=steps)
            except Killed:
                died = True
            else:
                died = False
        # Two kills in a row: the run after a kill may be killed too, and the one after that must still succeed.
        with pytest.MonkeyPatch.context() as patch:
            again = Steps(die_at=deaths // 2)
            kill_inside_publish(patch, again)
            with suppress(Killed):
                run(folders, ledger, overwrite=overwrite, step=again)
        run(folders, ledger, overwrite=overwrite, step=Steps())
        assert [content(folder) for folder in folders] == ["rows", "rows"]
        assert len(ledger.committed) == 1
        assert run(folders, ledger, step=Steps()).summary == {"rows": 4}
        if not died:
            break
        deaths += 1
    assert deaths > 15


def test_staged_files_of_a_killed_run_are_deleted(folders: list[Path]) -> None:
    with pytest.raises(Killed):
        run(folders, Ledger(), step=Steps(die_at=3))
    assert list((folders[0] / STATE).iterdir())
    run(folders, Ledger(), step=Steps())
    with Outputs(folders):
        pass
    assert sorted(path.name for path in folders[0].iterdir()) == [MARKER, "part-00000.json"]


def test_a_finished_run_is_not_repeated_even_with_overwrite(folders: list[Path]) -> None:
    ledger = Ledger()
    run(folders, ledger, step=Steps())
    run(folders, ledger, overwrite=True, step=Steps(die_at=0))
    assert content(folders[0]) == "rows"


def test_a_finished_run_is_not_repeated_when_the_ledger_has_forgotten_it(folders: list[Path]) -> None:
    run(folders, Ledger(), step=Steps())
    run(folders, Ledger(), step=Steps(die_at=0))
    assert content(folders[0]) == "rows"


def test_a_finished_run_with_other_arguments_is_refused(folders: list[Path]) -> None:
    ledger = Ledger()
    run(folders, ledger, step=Steps())
    with pytest.raises(OutputError, match=r"contains the result of another run .* Give a new folder or --overwrite\."):
        run(folders, ledger, wanted="other", step=Steps())
    assert content(folders[0]) == "rows"


def test_a_finished_run_with_a_missing_file_is_refused(folders: list[Path]) -> None:
    ledger = Ledger()
    run(folders, ledger, step=Steps())
    (folders[0] / "part-00000.json").unlink()
    with pytest.raises(OutputError, match=r"'part-00000\.json' is missing or changed"):
        run(folders, ledger, step=Steps())


@pytest.mark.parametrize("place", [0, 1])
def test_foreign_files_are_refused_and_left_alone(folders: list[Path], place: int) -> None:
    folders[place].mkdir()
    (folders[place] / "part-0.json").write_text("mine")
    with pytest.raises(OutputError, match=r"contains 'part-0\.json', which is not from this run"):
        run(folders, Ledger(), step=Steps())
    assert content(folders[place]) == "mine"


def test_foreign_files_among_leftovers_are_refused(folders: list[Path]) -> None:
    with pytest.raises(Killed):
        run(folders, Ledger(), step=Steps(die_at=3))
    (folders[0] / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"contains 'notes\.txt'"):
        run(folders, Ledger(), step=Steps())


def test_a_folder_in_use_is_refused(folders: list[Path]) -> None:
    with Outputs(folders), pytest.raises(OutputError, match="is being written by another oncebus process"):
        Outputs(folders[:1]).__enter__()


def test_a_run_that_fails_before_it_writes_leaves_no_folder(folders: list[Path]) -> None:
    with Outputs(folders):
        pass
    assert not any(folder.exists() for folder in folders)


def test_rolling_back_deletes_what_was_published(folders: list[Path]) -> None:
    with Outputs(folders) as places:
        out, duplicates = places.find()
        places.start(decide(out, duplicates, "same", Ledger().has, overwrite=False), "same", ARGUMENTS, None)
        for folder in folders:
            places.staging(folder).mkdir(parents=True)
        places.publish({}, {"token": places.token})
        places.roll_back()
    assert not any(folder.exists() for folder in folders)


def test_an_unreadable_marker_is_foreign(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("[]")
    assert inspect(tmp_path).foreign == MARKER


def test_the_fingerprint_depends_on_arguments_and_files() -> None:
    same = fingerprint(ARGUMENTS, [("a", 1, 2)])
    assert same == fingerprint(dict(ARGUMENTS), [("a", 1, 2)])
    assert len({same, fingerprint(ARGUMENTS, [("a", 1, 3)]), fingerprint({"key": ["b"]}, [("a", 1, 2)])}) == 3


def test_a_stream_is_continued_only_with_the_same_arguments(tmp_path: Path) -> None:
    marker = Marker("follow", "token", "", {"key": ["id"]})
    found = OutputFolder(tmp_path, marker)
    assert decide_follow(found, {"key": ["id"]}, overwrite=False) == marker
    assert decide_follow(OutputFolder(tmp_path), {"key": ["id"]}, overwrite=False) is None
    assert decide_follow(found, {"key": ["other"]}, overwrite=True) is None
    with pytest.raises(OutputError, match=r"was followed with --key id, not a, b\. Use the same arguments"):
        decide_follow(found, {"key": ["a", "b"]}, overwrite=False)
    with pytest.raises(OutputError, match="contains the output of --follow"):
        decide(found, None, "any", Ledger().has, overwrite=False)
