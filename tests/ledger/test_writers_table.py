"""Walks the table "One writer at a time" of docs/internals/ledger.md: each row is a scene that ends as the row says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncebus.ledger import CheckpointTooOld, Generation, Ledger, LedgerBatch, LedgerInUse, Owner, Writer
from tests.histories import SECOND, START, rows_of
from tests.ledger.owners import HERE, dead_owner
from tests.ledger.test_asides import Checkpoint
from tests.reference import Message

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "ledger.md"
AWAY, FURTHER = Owner("machine 1", 1, "0"), Owner("machine 2", 1, "0")
PARENT = Owner(HERE.place, os.getppid(), Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19])


class Scene:
    def __init__(self, folder: Path) -> None:
        self.ledger, self.checkpoint = Ledger.open(folder / "ledger"), Checkpoint(folder / "checkpoint", "one")

    def start(self, token: str, query: str, owner: Owner) -> Writer:
        """Return the writer of a driver that looks at the ledger now."""
        return Writer(token, query, owner, *self.ledger.predecessor(lambda _: False, owner))

    def write(self, writer: Writer, batch: int = 0) -> None:
        self.checkpoint.plan(batch)
        generation = self.ledger.join(writer, batch)
        self._judge(generation, batch)
        self.checkpoint.commit(batch)

    def run(self, token: str, query: str, owner: Owner, batch: int = 0) -> None:
        self.write(self.start(token, query, owner), batch)

    def batch(self, opened: LedgerBatch | None = None) -> None:
        with opened or self.ledger.batch() as batch:
            batch.begin(lambda _: False, HERE)
            self._judge(batch.generation, batch.number)

    def beside(self) -> None:
        self.batch(self.ledger.batch(checkpoint=self.checkpoint.folder))

    def _judge(self, generation: Generation, batch: int) -> None:
        rows = rows_of([Message(f"{generation.token} {batch}", START, 1, SECOND)])
        self.ledger.judge(rows, generation, batch, part=0, parts=1, clock=2**62)


def late_batch(scene: Scene) -> None:
    one = scene.start("aa", "one", AWAY)
    scene.batch()
    scene.write(one)


def after(*, owner: Owner, then: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Return the scene in which the query one has written a batch, and then something else happens."""

    def play(scene: Scene) -> None:
        scene.run("aa", "one", owner)
        then(scene)

    return play


def after_batch(then: Callable[[Scene], None]) -> Callable[[Scene], None]:
    def play(scene: Scene) -> None:
        scene.batch()
        then(scene)

    return play


def be_silent(scene: Scene) -> None:
    for file in Path(scene.ledger.location).iterdir():
        os.utime(file, (1, 1))
    scene.run("bb", "two", FURTHER)


def outlive(scene: Scene) -> None:
    late = scene.start("bb", "one", FURTHER)
    scene.run("cc", "one", Owner("machine 3", 1, "0"), 1)
    scene.write(late, 1)


def go_on_too_late(scene: Scene) -> None:
    scene.run("bb", "one", FURTHER, 1)
    scene.write(Writer("aa", "one", AWAY), 1)


def come_back(scene: Scene) -> None:
    scene.batch(scene.ledger.batch(take_over=True))
    scene.run("cc", "one", HERE, 1)


def come_back_after_query(scene: Scene) -> None:
    scene.run("bb", "two", HERE)
    scene.run("cc", "one", HERE, 1)


def go_on_after_an_aside(scene: Scene) -> None:
    scene.beside()
    scene.write(Writer("aa", "one", AWAY), 1)


def follow_foreach(scene: Scene) -> None:
    scene.batch(scene.ledger.batch(query="orders", batch=0))
    scene.run("bb", "two", FURTHER)


def claim_at_once(scene: Scene) -> None:
    class Slow(Ledger):
        def claim(self, generation: Generation) -> Generation:
            scene.run("bb", "two", FURTHER)
            return super().claim(generation)

    Slow.open(scene.ledger.location).join(scene.start("aa", "one", AWAY), 0)


def restore(scene: Scene) -> None:
    scene.run("bb", "one", FURTHER, 1)
    late = scene.start("cc", "one", HERE)
    for file in Path(scene.ledger.location).glob("*-*2.*"):
        file.unlink()
    scene.write(late, 2)


DEAD = dead_owner()
QUERY_AGAIN, OTHER_QUERY = "the same query, from its checkpoint", "another query"
SCENES: dict[tuple[str, str], list[Callable[[Scene], None]]] = {
    ("nobody", "a query or a batch"): [lambda scene: scene.run("aa", "one", AWAY), Scene.batch],
    ("a batch that has joined", "a query or a batch"): [
        after_batch(lambda scene: scene.run("aa", "one", AWAY)),
        after_batch(Scene.batch),
    ],
    ("a batch that joined after the driver looked", "a query"): [late_batch],
    ("a query that has ended", QUERY_AGAIN): [
        after(owner=owner, then=lambda scene: scene.run("bb", "one", HERE, 1)) for owner in (DEAD, HERE)
    ],
    ("a query that has ended", OTHER_QUERY): [
        after(owner=owner, then=lambda scene: scene.run("bb", "two", HERE)) for owner in (DEAD, HERE)
    ],
    ("a query on another machine", QUERY_AGAIN): [
        after(owner=AWAY, then=lambda scene: scene.run("bb", "one", FURTHER, 1))
    ],
    ("a query on another machine, silent for 60 seconds", OTHER_QUERY): [after(owner=AWAY, then=be_silent)],
    ("a query on another machine that wrote just now", OTHER_QUERY): [
        after(owner=AWAY, then=lambda scene: scene.run("bb", "two", FURTHER))
    ],
    ("a query that is alive on this machine", "the same query, another query or a batch"): [
        after(owner=PARENT, then=lambda scene: scene.run("bb", "one", FURTHER, 1)),
        after(owner=PARENT, then=lambda scene: scene.run("bb", "two", FURTHER)),
        after(owner=PARENT, then=Scene.batch),
    ],
    (
        "a query that started after the driver looked, alive or not",
        "a task of that driver that has no generation",
    ): [after(owner=owner, then=outlive) for owner in (AWAY, DEAD)],
    ("a query that took over", "tasks of the writer before"): [after(owner=AWAY, then=go_on_too_late)],
    ("a query or batch that took over", "the query before, from its checkpoint"): [
        after(owner=HERE, then=come_back),
        after(owner=HERE, then=come_back_after_query),
    ],
    ("a batch that joined beside the query", "the query"): [after(owner=AWAY, then=go_on_after_an_aside)],
    ("a query that has ended", "a batch"): [after(owner=HERE, then=Scene.batch)],
    ("a query that has ended", "a batch with `take_over=True`"): [
        after(owner=HERE, then=lambda scene: scene.batch(scene.ledger.batch(take_over=True)))
    ],
    ("a query, alive or not", "a batch with the query's checkpoint"): [
        after(owner=owner, then=Scene.beside) for owner in (AWAY, PARENT, DEAD)
    ],
    ("a query in `foreachBatch`, between two batches", OTHER_QUERY): [follow_foreach],
    ("a query", "the same result of `detect_duplicates` in a second query"): [
        after(owner=AWAY, then=lambda scene: scene.write(Writer("aa", "two", AWAY)))
    ],
    ("a query", "a second call of `detect_duplicates` in the same query"): [
        after(owner=AWAY, then=lambda scene: scene.write(Writer("bb", "one", AWAY)))
    ],
    ("a writer that claimed at the same moment", "any other"): [claim_at_once],
    ("the ledger was restored to a time before the driver looked", "a query"): [after(owner=AWAY, then=restore)],
}


def table() -> dict[tuple[str, str], str]:
    section = PAGE.read_text().partition("## One writer at a time")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {(newest, comes): then for newest, comes, then in cells[2:]}


def test_the_table_has_exactly_these_cases() -> None:
    assert list(table()) == list(SCENES)


@pytest.mark.parametrize("case", SCENES)
def test_a_case_ends_as_the_table_says(tmp_path: Path, case: tuple[str, str]) -> None:
    for number, play in enumerate(SCENES[case]):
        scene = Scene(tmp_path / str(number))
        if table()[case].startswith("refused"):
            with pytest.raises((LedgerInUse, CheckpointTooOld)):
                play(scene)
        else:
            before = scene.ledger.newest()
            play(scene)
            assert scene.ledger.newest() != before
