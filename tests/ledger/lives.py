"""Lives of a ledger: random sequences of everything that happens to one, compared with the reference after each step.

A life has batches of a query, batches in `foreachBatch` or batches outside a query, repetitions, restored checkpoints,
forgets, asides and changes of the number of parts. Any of them may die before any change of a file. Tasks may also be
*held*: they stop before a change, a listing or a read, others do their work, and later they go on as if nothing had
happened. So a task may outlive its driver, before or after it has claimed a generation, and an
attempt may go on when the runs that it saw are gone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from enum import Enum
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from oncebus.detection import judge
from oncebus.ledger import LANES, CheckpointTooOld, Ledger, LedgerBatch, LedgerInUse, Owner, Writer, writers
from oncebus.ledger.names import horizon_of
from oncebus.ledger.run import RecallFrom
from tests.histories import EVER, SECOND, START, YEAR, Batch, digest, rows_of, split, verdicts_of
from tests.ledger.owners import HERE, dead_owner
from tests.ledger.processes import Place, Process
from tests.ledger.test_asides import Checkpoint
from tests.ledger.test_ledger_properties import eager, memory_folder
from tests.reference import Forget, Message, Reference, Verdict

KEYS = ("a", "b", "c", "d", "e")
WINDOWS = (20 * SECOND, 20 * SECOND, 60 * SECOND, 600 * SECOND, EVER)
STEPS = (0, SECOND, 5 * SECOND, 20 * SECOND, 61 * SECOND)
MOST_OPERATIONS = 30
"""A process that is to die or to be held does so before one of so many operations, or survives."""


class Kind(Enum):
    """The writers of a life."""

    QUERY = "the tasks of a streaming query"
    FOREACH = "batches in foreachBatch"
    OUTSIDE = "batches outside a query"


class Life:
    """One life. `figures` counts what happened."""

    def __init__(
        self,
        folder: str,
        seed: int,
        figures: Counter[str],
        *,
        kind: Kind,
        repeatable: int,
        place: Place | None = None,
    ) -> None:
        self._chance = random.Random(seed)
        self._place = place or Place(f"{folder}/ledger")
        self._ledger = self._place.open()
        self._ledger.describe_or_check(["key string"])
        self._checkpoint = Checkpoint(Path(folder, "checkpoint"))
        self._kind, self._repeatable, self._furthest = kind, repeatable, 0
        self._figures = figures
        self._now, self._sequence, self._start, self._number = START, 0, 0, 0
        self._lateness = self._chance.choice((0, 0, 30 * SECOND))
        self._reference = Reference(self._lateness)
        self._before: list[Reference] = []
        """The state before each batch since the last aside, the newest last. Earlier batches are not repeated."""
        self._done: list[tuple[Batch, dict[Message, Verdict]]] = []
        """All batches and their verdicts."""
        self._driver: Writer | None = None
        self._is_one_process = self._chance.random() < 0.3
        """Whether all drivers are starts of a query in one process."""
        self._held: list[Process] = []
        self._is_calm = self._chance.random() < 0.4
        """Whether one generation lasts: attempts that stall are not stopped by the next one."""
        self._stalled: list[tuple[int, Process]] = []
        """Attempts that go on before this batch."""
        self._patience = self._chance.choice((0.4, 0.4, 0.05))
        """How likely it is that one of those that are held goes on now."""
        self._open: str | None = None
        """The token of the aside that is open."""

    def live(self, steps: int) -> None:
        actions = [self._batch] * 6
        if not self._is_calm or self._kind is Kind.OUTSIDE:
            actions += [self._forget]
        if not self._is_calm and self._kind is not Kind.OUTSIDE:
            actions += [self._aside, self._aside]
        if not self._is_calm and self._kind is Kind.QUERY:
            actions += [self._go_back]
        with mock.patch.object(Owner, "this_process", self._owner), mock.patch.object(writers, "SILENT_SECONDS", 0):
            self._live(actions, steps)

    def _owner(self) -> Owner:
        """Return the process. In foreachBatch, each start of the query is a process on another machine."""
        return Owner(f"machine {self._start}", 1, "0") if self._kind is Kind.FOREACH else HERE

    def _live(self, actions: Sequence[Callable[[], None]], steps: int) -> None:
        try:
            for _ in range(steps):
                self._chance.choice(actions)()
                self._let_some_go()
                self._compare()
                self._figures["steps"] += 1
            while self._held:
                self._let_go(0)
                self._compare()
        finally:
            for process in (*self._held, *(attempt for _, attempt in self._stalled)):
                process.kill()

    def _let_some_go(self) -> None:
        for due, attempt in [each for each in self._stalled if each[0] <= self._number]:
            self._stalled.remove((due, attempt))
            attempt.go_on()
            self._figures["stalled for long"] += 1
        while self._held and self._chance.random() < self._patience:
            self._let_go(self._chance.randrange(len(self._held)))

    def _let_go(self, at: int) -> None:
        self._held.pop(at).go_on()
        self._figures["resumed"] += 1

    def _compare(self) -> None:
        """Check the files, and ask about each key at several times."""
        found = self._ledger.check()
        assert found.problems == [], [str(problem) for problem in found.problems]
        visible = self._ledger.listing().visible()
        recall = RecallFrom([self._ledger._run(name) for name in visible if name.size])
        times = [self._now - 60 * SECOND, self._now, self._now + YEAR]
        for time in times:
            asked = [Message(key, time, 2**40, 90 * SECOND) for key in KEYS]
            verdicts = judge(rows_of(asked, self._lateness), recall, horizon_of(visible))
            assert verdicts_of(asked, verdicts) == deepcopy(self._reference).batch(asked, time)
            self._figures["verdicts compared"] += len(asked)

    def _messages(self, *, forgets: bool) -> Batch:
        chance = self._chance
        self._now += chance.choice(STEPS)
        messages = []
        for _ in range(chance.randrange(7)):
            self._sequence += 1
            kind = Forget if forgets and chance.random() < 0.3 else Message
            time = self._now - chance.choice((0, 0, *STEPS)) + chance.choice((0, 0, 0, 0, 5 * SECOND, YEAR))
            # Without numbers, a row that was forgotten and comes again has an entry that equals the forgotten one.
            sequence = chance.choice((0, self._sequence))
            messages.append(kind(chance.choice(KEYS), time, sequence, chance.choice(WINDOWS)))
        unique = {(each.key, each.time, each.sequence): each for each in messages}
        return Batch(tuple(unique.values()), self._now, chance.choice((1, 1, 2, LANES)))

    def _batch(self) -> None:
        batch = self._messages(forgets=True)
        if self._kind is Kind.OUTSIDE:
            self._batch_outside(batch)
        else:
            self._batch_of_query(batch)

    def _batch_of_query(self, batch: Batch) -> None:
        """Run the next batch of the query. Before it succeeds, tasks of it may die, be held, or be run again."""
        number = self._number
        self._before.append(deepcopy(self._reference))
        self._furthest = max(self._furthest, number)
        expected = self._reference.batch(batch.messages, batch.clock)
        self._checkpoint.plan(number)
        run = self._run_foreach if self._kind is Kind.FOREACH else self._run_query
        if self._kind is Kind.QUERY and not self._is_calm and self._chance.random() < 0.2:
            self._lose_driver(number, batch)
        if self._chance.random() < 0.4:
            self._stall(number, run(number, batch))
        for _ in range(self._chance.choice((0, 0, 0, 1, 1, 2))):
            self._harm(run(number, batch))
            self._start += not self._is_calm and self._chance.random() < 0.3
            # The next driver looks at the ledger. Then tasks of earlier ones go on.
            run(number, batch)
            self._let_some_go()
        for _ in range(self._chance.choice((1, 1, 2))):
            if self._is_overtaken():
                with pytest.raises(LedgerInUse):
                    run(number, batch)(self._place.open())
                self._start += 1
                self._figures["drivers refused"] += 1
            assert run(number, batch)(self._place.open()) == expected
        self._checkpoint.commit(number)
        self._number += 1
        self._done.append((batch, expected))

    def _lose_driver(self, number: int, batch: Batch) -> None:
        """Lose a driver before its task has entered. The task goes on when the next driver has looked, or later."""
        self._start += 1
        straggler = Process(self._place, lambda operation: operation.number == 0, dies=False)
        assert straggler.start(self._run_query(number, batch))
        self._held.append(straggler)
        self._start += 1
        self._writer()
        self._figures["drivers lost"] += 1
        if self._chance.random() < 0.3:
            self._let_go(len(self._held) - 1)

    def _stall(self, number: int, work: Callable[[Ledger], object]) -> None:
        """Stall an attempt before it reads a run, until the query is further than it could go back."""
        attempt = Process(
            self._place, lambda operation: operation.kind == "read" and operation.name.startswith("run-"), dies=False
        )
        if attempt.start(work):
            self._stalled.append((number + self._repeatable + self._chance.randrange(1, 4), attempt))

    def _run_query(self, number: int, batch: Batch) -> Callable[[Ledger], dict[Message, Verdict]]:
        writer = self._writer()
        return lambda ledger: run_tasks(ledger, writer, number, batch, self._lateness)

    def _is_overtaken(self) -> bool:
        """Return whether a task of an earlier driver has entered since the driver looked, which has no generation."""
        if self._kind is not Kind.QUERY:
            return False
        writer, listing = self._writer(), self._ledger.listing()
        has_claimed = any(writer.has_claimed(each) for each in listing.generations)
        return not has_claimed and not listing.is_unchanged_since(writer.follows)

    def _run_foreach(self, number: int, batch: Batch) -> Callable[[Ledger], dict[Message, Verdict]]:
        def run(ledger: Ledger) -> dict[Message, Verdict]:
            opened = ledger.batch(query="query", batch=number)
            opened.begin(lambda _: False, self._owner())
            found = judge_parts(opened, batch, self._lateness, tidies=True)
            opened.commit()
            return found

        return run

    def _writer(self) -> Writer:
        """Return the writer of the driver, which looked at the ledger when it started."""
        token = f"{self._start:032x}"
        if self._driver is None or self._driver.token != token:
            away, dead = Owner(f"machine {self._start}", 1, "0"), replace(DEAD, started=f"start {self._start}")
            owner = HERE if self._is_one_process else self._chance.choice((away, dead))
            self._driver = Writer(token, "query", owner, *self._ledger.predecessor(lambda _: False, owner))
        return self._driver

    def _batch_outside(self, batch: Batch) -> None:
        """Run a batch outside a query. Its source may change between two evaluations: then both count."""
        joins = self._chance.random() < 0.8
        evaluated = [batch]
        is_same_for_all = batch.parts == LANES or any(isinstance(each, Forget) for each in batch.messages)
        if not is_same_for_all and self._chance.random() < 0.3:
            evaluated.append(Batch(self._messages(forgets=False).messages, batch.clock, batch.parts))

        def run(ledger: Ledger) -> list[dict[Message, Verdict]]:
            opened = ledger.batch()
            opened.begin(lambda _: False, HERE)
            found = [judge_parts(opened, each, self._lateness) for each in evaluated]
            opened.commit() if joins else opened.discard()
            return found

        if self._chance.random() < 0.3:
            before = self._ledger.newest()
            self._harm(run, may_be_held=False)
            if self._ledger.newest() != before:
                # It died after it had joined.
                self._join(evaluated)
                return
        found = run(self._place.open())
        assert found == [deepcopy(self._reference).batch(each.messages, each.clock) for each in evaluated]
        if joins and any(each.messages for each in evaluated):
            self._join(evaluated)

    def _join(self, evaluated: Sequence[Batch]) -> None:
        earlier = deepcopy(self._reference)
        self._reference.batch(evaluated[0].messages, evaluated[0].clock)
        for more in evaluated[1:]:
            other = deepcopy(earlier)
            other.accepted = []
            other.batch(more.messages, more.clock)
            assert self._reference.join(other, len(self._reference.accepted))

    def _go_back(self) -> None:
        """Restore the checkpoint from before one of the last batches. Continue with the same rows or with others."""
        most = min(len(self._before), self._number - (self._furthest - self._repeatable + 1))
        if most < 1:
            return
        back = self._chance.randrange(1, most + 1)
        if self._chance.random() < 0.5:
            self._repeat(back)
            return
        self._done = self._done[:-back]
        self._reference = self._before[-back]
        self._before = self._before[:-back]
        self._number -= back
        for number in range(self._number, self._number + back):
            for kind in ("offsets", "commits"):
                (self._checkpoint.folder / kind / str(number)).unlink()
        self._start += 1
        self._batch_of_query(self._messages(forgets=True))
        self._figures["checkpoints restored"] += 1

    def _repeat(self, back: int) -> None:
        """Start the same plan again from an older checkpoint. Its batches get the same rows."""
        main = self._ledger.listing().main
        for number, (batch, expected) in enumerate(self._done[-back:], self._number - back):
            try:
                assert self._run_query(number, batch)(self._place.open()) == expected
                self._figures["batches repeated later"] += 1
            except CheckpointTooOld:
                assert main is not None
                assert number < main.first_batch

    def _forget(self) -> None:
        keys = self._chance.sample(KEYS, self._chance.randrange(1, 3))
        known = self._reference.remembered_now()
        expected = len({message.key for message in known} & set(keys))
        digests = np.array([digest(key) for key in keys], np.uint64)

        def run(ledger: Ledger) -> int:
            is_aside = self._kind is not Kind.OUTSIDE
            opened = ledger.batch(checkpoint=self._checkpoint.folder) if is_aside else ledger.batch()
            return ledger._forget(opened, digests[:, 0].copy(), digests[:, 1].copy())

        before = self._ledger.newest()
        if self._chance.random() < 0.4:
            self._harm(run, may_be_held=False)
        if self._ledger.newest() == before:
            assert run(self._place.open()) == expected
        self._reference.remembered = [each for each in self._reference.remembered if each.key not in keys]
        if self._ledger.newest() != before:
            self._before = []
        self._figures["forgets"] += 1

    def _aside(self) -> None:
        """Run a batch beside the query, which runs batches of its own meanwhile."""
        if not self._number:
            return
        side = self._messages(forgets=False)
        opened = self._place.open().batch(checkpoint=self._checkpoint.folder)
        opened.begin(lambda _: True, HERE)
        self._open = opened.generation.token
        model, since, newest = self._reference.aside(), len(self._reference.accepted), self._ledger.newest()
        expected = model.batch(side.messages, side.clock)
        for _ in range(self._chance.randrange(4)):
            self._batch_of_query(self._messages(forgets=False))
        if self._ledger.newest() != newest:
            # The query has started again.
            opened.discard()
            return
        assert judge_parts(opened, side, self._lateness) == expected
        if self._chance.random() < 0.2 or not side.messages:
            opened.discard()
            return
        try:
            opened.commit()
        except LedgerInUse:
            assert not deepcopy(self._reference).join(model, since)
        else:
            assert self._reference.join(model, since)
            self._before = []
        self._figures["asides"] += 1

    def _harm(self, work: Callable[[Ledger], object], *, may_be_held: bool = True) -> None:
        """Do some work in a process of its own that dies or is held before one of its operations, if it gets there."""
        if (failure := self._place.fail(work)) is not None:
            self._figures[failure] += 1
            self._believe_dead()
            return
        moment, deletes = self._chance.randrange(MOST_OPERATIONS), count(self._chance.randrange(-6, 0))
        name, strikes = self._chance.choice(
            (
                ("", lambda operation: operation.number == moment),
                (" in a merge", lambda operation: operation.is_merge),
                (" before a read", lambda operation: operation.kind == "read" and operation.name.startswith("run-")),
                (" between deletes", lambda operation: operation.kind == "delete" and next(deletes) == 0),
            )
        )
        dies = not may_be_held or self._chance.random() < 0.5
        process = Process(self._place, strikes, dies=dies)
        if process.start(work):
            self._held.append(process)
            self._figures[f"held{name}"] += 1
        self._figures[f"died{name}"] += process.is_dead
        self._believe_dead()

    def _believe_dead(self) -> None:
        """Let everybody else believe that the processes that left marks have died, even those that are only held."""
        for mark in self._ledger.listing().asides:
            if not mark.is_joining and mark.token != self._open:
                self._ledger.mark(mark.name, DEAD.to_json())


DEAD = dead_owner()


def live(
    seeds: Iterable[int],
    steps: int,
    figures: Counter[str],
    make_place: Callable[[str, int], Place] | None = None,
) -> None:
    """Live the lives of some seeds. `figures` counts how often each kind of event happens."""
    for seed in seeds:
        repeatable, fan, full = (1, 2)[seed % 2], (2, 3, 8)[seed // 5 % 3], (6, 1_000_000)[seed // 2 % 2]
        with memory_folder() as folder, eager(repeatable, fan, full):
            place = None if make_place is None else make_place(folder, seed)
            try:
                life = Life(folder, seed, figures, kind=list(Kind)[seed % 3], repeatable=repeatable, place=place)
                life.live(steps)
            except BaseException as error:
                error.add_note(f"in the life with the seed {seed}")
                raise
        figures["lives"] += 1


def run_tasks(ledger: Ledger, writer: Writer, number: int, batch: Batch, lateness: int) -> dict[Message, Verdict]:
    found: dict[Message, Verdict] = {}
    for part, messages in enumerate(split(batch.messages, 2 if batch.parts == LANES else batch.parts)):
        generation, listing = ledger.enter(writer, number)
        if messages:
            verdicts = ledger.judge(
                rows_of(messages, lateness),
                generation,
                number,
                part=part,
                parts=batch.parts,
                clock=batch.clock,
                listing=listing,
            )
            found |= verdicts_of(messages, verdicts)
            ledger.tidy(generation, number, part=part, parts=batch.parts)
    return found


def judge_parts(opened: LedgerBatch, batch: Batch, lateness: int, *, tidies: bool = False) -> dict[Message, Verdict]:
    found: dict[Message, Verdict] = {}
    for part, messages in enumerate(split(batch.messages, 2 if batch.parts == LANES else batch.parts)):
        if messages:
            ledger, generation, number = opened.ledger, opened.generation, opened.number
            rows = rows_of(messages, lateness)
            verdicts = ledger.judge(rows, generation, number, part=part, parts=batch.parts, clock=batch.clock)
            found |= verdicts_of(messages, verdicts)
            if tidies:
                ledger.tidy(generation, number, part=part, parts=batch.parts)
    return found
