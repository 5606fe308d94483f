"""Copies of a topic's message share its content, and each way out deletes exactly what nobody needs any more."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from oncebus.engine.store import Action, Changes, Kind, Message, Mode, Policy, Settlement, Store, SubQueue
from oncebus.engine.store.copies import LEAST_SHARED
from oncebus.model.messages import Fate
from tests.engine.store.conftest import Stores
from tests.engine.store.store_rows import QUEUE, SECOND, START, again, check_contents, entry, take

TOPIC, FIRST, SECOND_SUBSCRIPTION, THIRD = 20, 21, 22, 23
SUBSCRIPTIONS = (FIRST, SECOND_SUBSCRIPTION, THIRD)
SMALL, LARGE = LEAST_SHARED - 1, LEAST_SHARED
POLICIES = {
    TOPIC: Policy(Kind.TOPIC),
    QUEUE: Policy(),
    FIRST: Policy(Kind.SUBSCRIPTION, lock_duration=5 * SECOND, max_delivery_count=2),
    SECOND_SUBSCRIPTION: Policy(Kind.SUBSCRIPTION, dead_letter_on_expiry=True),
    THIRD: Policy(Kind.SUBSCRIPTION, forward_dead_letters_to=QUEUE),
}


def fan_out(*numbers: int, size: int = LARGE, **fields: Any) -> list[dict[str, Any]]:
    """Return a row for each subscription. The contents differ from number to number."""
    return [
        {
            "entity": TOPIC,
            "sequence": number,
            "position": 1000 * number,
            "destination": each,
            "size": size,
            "head": b"head",
            "body": b"%d" % number * size,
            **fields,
        }
        for number in numbers
        for each in SUBSCRIPTIONS
    ]


def receive(store: Store, entity: int, count: int = 9, now: int = START, **more: Any) -> list[Message]:
    with store.transaction():
        return store.messages.receive(entity, count, more.pop("mode", Mode.PEEK_LOCK), POLICIES[entity], now, **more)


def settle(store: Store, action: Action, messages: list[Message], now: int = START, **more: Any) -> None:
    settlements = [Settlement(action, message.token or b"", **more) for message in messages]
    with store.transaction():
        store.locks.settle(messages[0].entity, settlements, POLICIES[messages[0].entity], now)


def test_large_contents_are_shared_and_small_ones_are_not(store: Store) -> None:
    take(store, fan_out(1, 2) + fan_out(3, size=SMALL) + [{"entity": QUEUE, "sequence": 4, "size": LARGE}], POLICIES)
    assert check_contents(store) == (2 + 3 + 1, 2)
    for each in SUBSCRIPTIONS:
        bodies = [message.body for message in receive(store, each)]
        assert bodies == [b"1" * LARGE, b"2" * LARGE, b"3" * SMALL]
    assert store.messages.search(THIRD, SubQueue.MAIN, 0, 9, "m2") == ([2], None)
    found, _ = store.messages.search_everywhere("m1", 2**62, 99)
    assert {(each.entity, each.sequence) for each in found} == {(each, 1) for each in SUBSCRIPTIONS}


def test_a_copy_that_a_rule_changed_has_a_content_of_its_own(store: Store) -> None:
    rows = fan_out(1)
    rows[1]["head"] = b"changed"
    take(store, rows, POLICIES)
    assert check_contents(store) == (2, 1)
    heads = [receive(store, each)[0].head for each in SUBSCRIPTIONS]
    assert heads == [b"head", b"changed", b"head"]


def test_two_copies_in_one_subscription_count_twice(store: Store) -> None:
    rows = [{**row, "destination": FIRST} for row in fan_out(1)[:2]] + fan_out(1)[2:]
    take(store, rows, POLICIES)
    assert check_contents(store) == (1, 1)
    settle(store, Action.COMPLETE, receive(store, FIRST))
    assert check_contents(store) == (1, 1)
    take(store, [{**row, "destination": FIRST} for row in fan_out(2)], POLICIES)
    with store.transaction():
        store.entities.delete([FIRST], store.progress.position())
    assert check_contents(store) == (1, 1)
    settle(store, Action.COMPLETE, receive(store, THIRD))
    assert check_contents(store) == (0, 0)


@pytest.mark.parametrize("which", SUBSCRIPTIONS)
def test_a_receiver_that_changes_a_head_changes_one_copy(store: Store, which: int) -> None:
    take(store, fan_out(1), POLICIES)
    settle(store, Action.ABANDON, receive(store, which), head=b"mine")
    assert check_contents(store) == (2, 1)
    for each in SUBSCRIPTIONS:
        (message,) = store.messages.peek(each, 0, 9, START)
        assert (message.head, message.body) == (b"mine" if each == which else b"head", b"1" * LARGE)
    # The next message gets the content that it would get otherwise.
    for each in SUBSCRIPTIONS:
        settle(store, Action.COMPLETE, receive(store, each))
        take(store, fan_out(10 + each), POLICIES)
        check_contents(store)
    assert check_contents(store)[1] == 3


def test_every_way_out_of_many_copies(open_store: Stores, request: pytest.FixtureRequest) -> None:
    """Random operations on the copies of a topic, in transactions of which some fail."""
    for seed in range(25 if "files" in request.node.name else 3):
        chance = random.Random(seed)
        store = open_store(str(seed), random=chance.randbytes)
        step = Steps(store, chance)
        for _ in range(60):
            step.run()
            check_contents(store)
        for each in (*SUBSCRIPTIONS, QUEUE):
            with store.transaction():
                store.entities.delete([each], store.progress.position())
            check_contents(store)
        assert check_contents(store) == (0, 0)
        store.close()


class Undone(Exception):
    """Ends a transaction before it is durable."""


class Steps:
    """Random operations. Each can be undone."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.number, self.now = 0, START

    def run(self) -> None:
        self.now += self.chance.randrange(3 * SECOND)
        step = self.chance.choice(
            (
                self.take,
                self.take,
                self.settle,
                self.settle,
                self.delete,
                self.purge,
                self.expire,
                self.requeue,
                self.resubmit,
                self.commit,
                self.delete_entity,
            )
        )
        if self.chance.random() < 0.2:
            before = self.store._connection.execute("SELECT * FROM content ORDER BY id").fetchall()
            with suppress(Undone), self.store.transaction():
                step()
                raise Undone
            assert self.store._connection.execute("SELECT * FROM content ORDER BY id").fetchall() == before
        else:
            with self.store.transaction():
                step()

    def entity(self) -> int:
        return self.chance.choice(SUBSCRIPTIONS)

    def take(self) -> None:
        rows: list[dict[str, Any]] = []
        for _ in range(self.chance.randrange(1, 4)):
            self.number += 1
            some = fan_out(self.number, size=self.chance.choice((SMALL, LARGE)), time=self.now)
            for row in some:
                row["expires"] = self.chance.choice((None, self.now + 4 * SECOND))
                row["head"] = self.chance.choice((b"head", b"head", b"changed"))
                row["fate"] = self.chance.choice((Fate.DELIVERED, Fate.DELIVERED, Fate.DEAD_LETTERED))
            rows += self.chance.sample(some, self.chance.randrange(1, 4))
        rows.sort(key=lambda row: int(row["position"]))
        self.ingest(rows)

    def ingest(self, rows: list[dict[str, Any]]) -> None:
        commit = self.store.progress.position() + 1
        self.store.entries.ingest(entry(rows, commit), commit, commit, POLICIES, self.now)

    def received(self, entity: int) -> list[Message]:
        sub_queue = self.chance.choice((SubQueue.MAIN, SubQueue.MAIN, SubQueue.DEAD_LETTER))
        return self.store.messages.receive(entity, 4, Mode.PEEK_LOCK, POLICIES[entity], self.now, sub_queue=sub_queue)

    def settlement(self, message: Message) -> Settlement:
        action = self.chance.choice(
            (Action.COMPLETE, Action.COMPLETE, Action.ABANDON, Action.DEFER, Action.DEAD_LETTER)
        )
        head = self.chance.choice((None, b"mine")) if action is not Action.COMPLETE else None
        return Settlement(action, message.token or b"", head=head)

    def settle(self) -> None:
        entity = self.entity()
        settlements = [self.settlement(message) for message in self.received(entity)]
        self.store.locks.settle(entity, settlements, POLICIES[entity], self.now)

    def delete(self) -> None:
        entity = self.entity()
        self.store.messages.receive(entity, 3, Mode.RECEIVE_AND_DELETE, POLICIES[entity], self.now)

    def purge(self) -> None:
        self.store.messages.purge(self.entity(), self.now, 2, SubQueue.MAIN, 0, 99)
        self.store.messages.delete_oldest(self.entity(), self.now, 1, SubQueue.DEAD_LETTER)

    def expire(self) -> None:
        self.store.locks.expire(POLICIES, self.now)
        self.store.messages.expire(POLICIES, self.now)

    def requeue(self) -> None:
        requeues = self.store.requeues.next_batch(POLICIES, self.store.progress.position())
        commit = self.store.progress.position() + 1
        self.store.requeues.end(requeues, commit)
        self.number += len(requeues)
        first = 10**6 + self.number
        self.ingest([again(each, first + at, time=self.now) for at, each in enumerate(requeues)])
        self.number += len(requeues)

    def resubmit(self) -> None:
        entity = self.entity()
        dead = [each.sequence for each in self.store.messages.peek(entity, 0, 9, self.now, None, SubQueue.DEAD_LETTER)]
        self.store.dead_letters.resubmit(entity, dead[:2], POLICIES[entity], self.now)
        self.store.dead_letters.discard(entity, dead[2:4], SubQueue.DEAD_LETTER)

    def commit(self) -> None:
        changes = Changes()
        for entity in SUBSCRIPTIONS:
            messages = self.store.messages.receive(entity, 2, Mode.PEEK_LOCK, POLICIES[entity], self.now)
            changes.settlements += [(entity, self.settlement(message), None) for message in messages]
        self.store.pending.commit(changes, [], POLICIES, self.now)

    def delete_entity(self) -> None:
        if self.chance.random() < 0.2:
            self.store.entities.delete([self.entity()], self.store.progress.position())
