"""Samples of the counters over time."""

from __future__ import annotations

from contextlib import suppress

import pytest

from oncebus.engine.store import (
    NAMESPACE,
    Action,
    Kind,
    Mode,
    Policy,
    Samples,
    Settlement,
    Span,
    Store,
    per_second,
    sampler,
)
from oncebus.model.messages import Fate
from oncebus.values.durations import DAY, HOUR, SECOND
from tests.engine.store.conftest import Stores
from tests.engine.store.store_rows import QUEUE, take

TOPIC, COPIES = 8, 9
POLICIES = {QUEUE: Policy(), TOPIC: Policy(Kind.TOPIC), COPIES: Policy(Kind.SUBSCRIPTION)}
# The start of a slot in every span.
NOON = 1_700_006_400 * SECOND


class Scene:
    """A store with samples, and a clock."""

    def __init__(self, open_store: Stores) -> None:
        self.now = NOON
        self._open = open_store
        self.sent = 0
        self.open()

    def open(self) -> None:
        self.store = self._open()
        with self.store.transaction():
            self.store.samples.begin(self.now)

    def send(self, count: int, *, entity: int = QUEUE, fate: Fate = Fate.DELIVERED) -> None:
        rows = []
        for _ in range(count):
            self.sent += 1
            destination = COPIES if entity == TOPIC else entity
            row = {"entity": entity, "sequence": self.sent, "position": self.sent, "fate": fate, "time": self.now}
            rows.append(row if fate is Fate.DUPLICATE else {**row, "destination": destination})
        take(self.store, rows, {**POLICIES, entity: POLICIES.get(entity, Policy())}, self.now)

    def complete(self, count: int) -> None:
        with self.store.transaction():
            found = self.store.messages.receive(QUEUE, count, Mode.PEEK_LOCK, POLICIES[QUEUE], self.now)
            done = [Settlement(Action.COMPLETE, each.token or b"") for each in found]
            self.store.locks.settle(QUEUE, done, POLICIES[QUEUE], self.now)

    def passes(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        with self.store.transaction():
            self.store.samples.take(self.now)

    def samples(self, entity: int = QUEUE, span: Span = Span.TEN_MINUTES, since: int = 0) -> Samples:
        with self.store.transaction():
            return self.store.samples.read(entity, span, self.now, since)

    def restart(self, *, after: float, crash: bool = False) -> None:
        if not crash:
            with self.store.transaction():
                self.store.samples.end(self.now)
        self.store.close()
        self.now += round(after * SECOND)
        self.open()


@pytest.fixture(name="scene")
def make_scene(open_store: Stores) -> Scene:
    return Scene(open_store)


def test_a_slot_shows_what_changed_in_it_once_it_has_ended(scene: Scene) -> None:
    scene.send(3)
    scene.send(1, fate=Fate.DUPLICATE)
    scene.now += SECOND
    # Looking at it in the middle of a slot changes nothing.
    assert scene.samples().new[-1] is None
    scene.complete(2)
    scene.passes(1)
    seen = scene.samples()
    assert [each[-2:] for each in seen[2:]] == [[None, 3], [None, 1], [None, 2], [None, 2], [None, 0], [None, 1]]
    assert (seen.incoming[-1], seen.end, len(seen.new)) == (4, scene.now, Span.TEN_MINUTES.slots)
    scene.passes(4)
    seen = scene.samples()
    assert (seen.new[-3:], seen.backlog[-3:]) == ([3, 0, 0], [1, 1, 1])


def test_the_same_changes_are_in_all_spans(scene: Scene) -> None:
    for _ in range(10):
        scene.send(2)
        scene.passes(60)
    for span, first in ((Span.TEN_MINUTES, 2), (Span.HOUR, 2), (Span.DAY, 10)):
        seen = scene.samples(span=span).new
        assert next(count for count in seen if count) == first
        assert sum(filter(None, seen)) == 20
        assert sum(count is not None for count in seen) * span.step == 600


def test_old_samples_are_forgotten(scene: Scene) -> None:
    scene.send(5)
    scene.passes(2)
    for _ in range(12):
        scene.send(1)
        scene.passes(60)
    assert sum(filter(None, scene.samples().new)) < 12
    scene.passes(2 * DAY / SECOND)
    scene.send(1)
    scene.passes(60)
    scene.passes(60)
    rows = scene.store._connection.execute("SELECT count(*) FROM sample WHERE entity = ?", (QUEUE,)).fetchone()[0]
    assert rows == len(Span)
    # Its messages are still there, and were there all the time.
    assert set(scene.samples(span=Span.HOUR).backlog) == {17, 18}


def test_the_namespace_counts_a_message_once_and_a_subscription_its_copies(scene: Scene) -> None:
    scene.send(2, entity=TOPIC)
    scene.send(1)
    scene.passes(2)
    for entity, new, backlog in ((TOPIC, 2, 0), (COPIES, 2, 2), (QUEUE, 1, 1), (NAMESPACE, 3, 3)):
        seen = scene.samples(entity)
        assert (seen.new[-1], seen.backlog[-1]) == (new, backlog), entity


@pytest.mark.parametrize("crash", [False, True])
def test_samples_survive_and_nothing_is_known_about_the_time_between(scene: Scene, crash: bool) -> None:
    scene.passes(30)
    scene.send(4)
    scene.passes(30)
    scene.send(1)
    scene.passes(2)
    scene.restart(after=60, crash=crash)
    scene.complete(2)
    scene.passes(20)
    seen = scene.samples()
    ran, was_down = 16 + 15, 30
    assert seen.new[: -ran - was_down - 10] == [None] * (300 - ran - was_down - 10)
    assert seen.new[-10 - was_down : -10] == [None] * was_down
    assert (sum(filter(None, seen.new)), sum(filter(None, seen.completed))) == (5, 2)
    assert (seen.backlog[-11 - was_down], seen.backlog[-1]) == (5, 3)
    assert seen.new[-10:] == [0] * 10


def test_before_an_entity_exists_nothing_is_known_about_it(scene: Scene) -> None:
    scene.passes(100)
    created = scene.now
    scene.passes(10)
    scene.send(1)
    scene.passes(2)
    assert scene.samples(since=created).new[-8:] == [None, None, 0, 0, 0, 0, 0, 1]


def test_an_idle_store_is_not_written(scene: Scene) -> None:
    scene.send(1)
    scene.passes(2)
    changes = changed(scene.store)
    for _ in range(10):
        scene.passes(60)
        scene.samples()
    assert changed(scene.store) == changes


def changed(store: Store) -> list[object]:
    """Return something that differs after any change."""
    execute = store._connection.execute
    tables = ("message", "counter", "sample", "running", "progress", "highest")
    return [execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]


def test_a_failed_transaction_loses_no_sample(scene: Scene) -> None:
    scene.send(3)
    scene.now += 2 * SECOND
    with suppress(ZeroDivisionError), scene.store.transaction():
        scene.store.samples.take(scene.now)
        raise ZeroDivisionError
    scene.passes(2)
    assert sum(filter(None, scene.samples().new)) == 3
    scene.passes(2)
    assert sum(filter(None, scene.samples().new)) == 3


def test_changes_after_a_sample_in_the_same_transaction_belong_to_the_next_one(scene: Scene) -> None:
    scene.send(3)
    scene.now += 2 * SECOND
    with scene.store.transaction():
        scene.store.samples.take(scene.now)
        scene.store.messages.receive(QUEUE, 1, Mode.RECEIVE_AND_DELETE, POLICIES[QUEUE], scene.now)
    scene.passes(2)
    assert scene.samples().outgoing[-2:] == [0, 1]


def test_a_deleted_entity_has_no_samples(scene: Scene) -> None:
    scene.send(3)
    scene.passes(2)
    with scene.store.transaction():
        scene.store.entities.delete([QUEUE], scene.store.progress.position())
    scene.passes(2)
    assert set(scene.samples().new) <= {0, None}
    assert scene.samples(NAMESPACE).backlog[-2:] == [3, 0]


def test_a_limited_number_of_entities_have_samples(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MOST_ENTITIES", 3)
    for entity in (11, 12, 13):
        scene.send(1, entity=entity)
        scene.passes(2)
    # The namespace is one of the three.
    assert [scene.samples(entity).new[-1] for entity in (11, 12, 13)] == [0, 0, None]
    scene.passes(HOUR / SECOND)
    scene.send(1, entity=12)
    scene.send(1, entity=13)
    scene.passes(2)
    assert [scene.samples(entity).new[-1] for entity in (11, 12, 13, NAMESPACE)] == [None, 1, 1, 2]


def test_a_rate_is_that_of_the_last_ten_seconds_as_far_as_they_are_known() -> None:
    assert per_second([100, 0, 0, 0, 0, 20], 2) == 2.0
    assert per_second([None, None, None, 4, 0], 2) == 1.0
    assert per_second([None] * 9, 2) is None
