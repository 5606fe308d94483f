"""Random histories through the ledger agree with the reference model, whatever happens to the files meanwhile."""

from __future__ import annotations

import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from unittest import mock

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from oncebus.detection import NO_HORIZON, judge, recall_nothing
from oncebus.ledger import CheckpointTooOld, Ledger, Owner, Writer, generations, merging, tidying
from oncebus.ledger.local_storage import LocalStorage
from oncebus.ledger.names import parse_run_names
from oncebus.ledger.storage import Piece, Stamp
from tests.histories import SECOND, START, WINDOWS, YEAR, Batch, histories, rows_of, split, verdicts_of
from tests.ledger.processes import Died
from tests.properties import examples, search
from tests.reference import Message, Reference, Verdict


@contextmanager
def eager(repeatable: int, fan: int, full: int = merging.FULL) -> Iterator[None]:
    """Merge, rewrite and delete as early as possible."""
    choose, rewrite = merging.choose_merge, merging.choose_rewrite
    with (
        mock.patch.object(tidying, "REPEATABLE_BATCHES", repeatable),
        mock.patch.object(generations, "REPEATABLE_BATCHES", repeatable),
        mock.patch.object(tidying, "choose_merge", lambda sizes: choose(sizes, fan=fan, full=full)),
        mock.patch.object(tidying, "choose_rewrite", lambda runs, horizon: rewrite(runs, horizon, least=1)),
    ):
        yield


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory, if there is one: thousands of histories need not reach a disk."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def started(ledger: Ledger, start: int) -> Writer:
    """Return the writer for one of several starts of a query in this process."""
    newest = ledger.newest()
    return Writer(f"{start:032x}", "query", Owner.this_process(), newest.number if newest else 0)


def run_batch(ledger: Ledger, writer: Writer, number: int, batch: Batch, lateness: int) -> dict[Message, Verdict]:
    found: dict[Message, Verdict] = {}
    for part, messages in enumerate(split(batch.messages, batch.parts)):
        generation, listing = ledger.enter(writer, number)
        if messages:
            rows = rows_of(messages, lateness)
            verdicts = ledger.judge(
                rows, generation, number, part=part, parts=batch.parts, clock=batch.clock, listing=listing
            )
            found |= verdicts_of(messages, verdicts)
            ledger.tidy(generation, number, part=part, parts=batch.parts)
    return found


@given(batch=histories(most_batches=1, sizes=12))
@search(1000)
def test_a_batch_alone_is_judged_as_the_reference_does(batch: list[Batch]) -> None:
    messages = batch[0].messages
    expected = Reference().batch(messages, batch[0].clock)
    assert verdicts_of(messages, judge(rows_of(messages), recall_nothing, NO_HORIZON)) == expected


@given(
    history=histories(),
    lateness=st.sampled_from([0, 0, 1, 30 * SECOND]),
    fan=st.sampled_from([2, 2, 3, 8, 1000]),
    repeatable=st.sampled_from([1, 1, 2, 4]),
    data=st.data(),
)
@search(150)
def test_a_history_is_judged_as_the_reference_does(
    history: list[Batch], lateness: int, fan: int, repeatable: int, data: st.DataObject
) -> None:
    reference = Reference(lateness)
    with memory_folder() as folder, eager(repeatable, fan):
        ledger = Ledger.open(f"{folder}/ledger")
        start = 0
        for number, batch in enumerate(history):
            expected = reference.batch(batch.messages, batch.clock)
            # Repeating a batch, in the same start of the query or in a new one, must change nothing.
            for _ in range(data.draw(st.integers(1, 3), label="times")):
                start += data.draw(st.integers(0, 1), label="restart")
                writer = started(ledger, start)
                assert run_batch(ledger, writer, number, batch, lateness) == expected


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_is_judged_as_the_reference_does(seed: int) -> None:
    """Runs fill up, are forgotten except for a few rows dated ahead, are rewritten and merged again, many times."""
    chance = random.Random(seed)
    reference, sizes = Reference(), defaultdict(set)
    with memory_folder() as folder, eager(2, fan=3, full=20):
        ledger = Ledger.open(f"{folder}/ledger")
        for number in range(80):
            now = START + number * 3 * SECOND
            messages = tuple(
                Message(
                    f"key {chance.randrange(40)}",
                    now + chance.choice([0] * 20 + [-10 * SECOND, 100 * SECOND, YEAR]),
                    100 * number + at,
                    chance.choice(WINDOWS),
                )
                for at in range(chance.randrange(20))
            )
            batch = Batch(messages, now, 1 if number < 60 else 2)
            expected = reference.batch(batch.messages, batch.clock)
            for _ in range(2):
                writer = started(ledger, number // 20)
                assert run_batch(ledger, writer, number, batch, 0) == expected
                for run in parse_run_names(os.listdir(ledger.location)):
                    sizes[run.is_merged, run.first, run.last, run.part, run.parts].add(run.size)
    # A run that is rewritten has the name that it had before, except for its size.
    assert {is_merged for (is_merged, *_), found in sizes.items() if len(found) > 1} == {False, True}


class DyingStorage(LocalStorage):
    """A folder whose user dies before or after one of the next changes, as often as the test says."""

    steps = 1 << 30

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        self._step()
        super().publish(name, pieces)
        self._step()

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._step()
            super().delete([name])

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Died


@given(history=histories(), fan=st.sampled_from([2, 8, 1000]), data=st.data())
@search(60)
def test_a_writer_that_dies_anywhere_changes_no_verdict(history: list[Batch], fan: int, data: st.DataObject) -> None:
    """It dies between any two changes of the folder: while judging, merging, rewriting or deleting."""
    reference = Reference()
    with memory_folder() as folder, eager(1, fan):
        storage = DyingStorage(f"{folder}/ledger")
        start = 0
        for number, batch in enumerate(history):
            expected = reference.batch(batch.messages, batch.clock)
            storage.steps = data.draw(st.integers(0, 12), label="steps")
            for _ in range(2):
                writer = started(Ledger(storage), start)
                with suppress(Died):
                    assert run_batch(Ledger(storage), writer, number, batch, 0) == expected
                    break
                start += data.draw(st.integers(0, 1), label="restart")
                storage.steps = 1 << 30


@given(history=histories(), fan=st.sampled_from([2, 8, 1000]))
@search(60)
def test_a_folder_changed_while_it_is_read_changes_no_verdict(history: list[Batch], fan: int) -> None:
    """A second evaluation of each batch lists the folder, and opens the runs only after the first has tidied."""

    class Late(LocalStorage):
        meanwhile: list[Callable[[], object]]

        def names(self) -> dict[str, Stamp]:
            found = super().names()
            while self.meanwhile:
                self.meanwhile.pop()()
            return found

    reference = Reference()
    with memory_folder() as folder, eager(1, fan):
        fast, slow = Ledger.open(f"{folder}/ledger"), Late(f"{folder}/ledger")
        for number, batch in enumerate(history):
            expected = reference.batch(batch.messages, batch.clock)
            writer = started(fast, 0)
            generation = fast.join(writer, number)
            for part, messages in enumerate(split(batch.messages, batch.parts)):
                if messages:
                    rows = rows_of(messages)
                    slow.meanwhile = [partial(run_batch, fast, writer, number, batch, 0)]
                    verdicts = Ledger(slow).judge(
                        rows, generation, number, part=part, parts=batch.parts, clock=batch.clock
                    )
                    assert verdicts_of(messages, verdicts).items() <= expected.items()


@given(segments=st.lists(st.tuples(st.integers(0, 5), histories(most_batches=6)), min_size=2, max_size=5))
@search(200)
def test_going_back_to_older_checkpoints_is_right_or_refused(segments: list[tuple[int, list[Batch]]]) -> None:
    """The later batches are judged again, perhaps cut differently, several times."""
    with memory_folder() as folder, eager(3, 2):
        ledger = Ledger.open(f"{folder}/ledger")
        done: list[Batch] = []
        furthest = 0
        for start, (back, then) in enumerate(segments):
            first = max(0, len(done) - back)
            done = [*done[:first], *then]
            reference = Reference()
            for number, batch in enumerate(done):
                expected = reference.batch(batch.messages, batch.clock)
                if number >= first:
                    writer = started(ledger, start)
                    try:
                        found = run_batch(ledger, writer, number, batch, 0)
                    except CheckpointTooOld:
                        assert first < furthest - 2, "refused, although the last three batches can be repeated"
                        return
                    furthest = max(furthest, number)
                    assert found == expected


@given(history=histories(most_batches=8), mixed=st.lists(st.booleans(), min_size=8, max_size=8))
@search(150)
def test_batches_that_join_are_judged_as_the_reference_does(history: list[Batch], mixed: list[bool]) -> None:
    """A batch that is discarded leaves no trace; one that joins is remembered."""
    reference = Reference()
    with memory_folder() as folder, eager(1, 2):
        for batch, joins in zip(history, mixed, strict=False):
            opened = Ledger.open(f"{folder}/ledger").batch()
            before = Reference(horizon=reference.horizon, remembered=list(reference.remembered))
            model = reference if joins else before
            expected = model.batch(batch.messages, batch.clock)
            for _ in range(2):
                found: dict[Message, Verdict] = {}
                for part, messages in enumerate(split(batch.messages, batch.parts)):
                    if messages:
                        verdicts = opened.ledger.judge(
                            rows_of(messages), opened.generation, 0, part=part, parts=batch.parts, clock=batch.clock
                        )
                        found |= verdicts_of(messages, verdicts)
                assert found == expected
            if joins:
                opened.commit()
            else:
                opened.discard()


@pytest.mark.torture
@given(history=histories(most_batches=60), data=st.data())
@examples(20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_long_histories(history: list[Batch], data: st.DataObject) -> None:
    test_a_history_is_judged_as_the_reference_does.hypothesis.inner_test(history, 0, 2, 1, data)  # type: ignore[attr-defined]
