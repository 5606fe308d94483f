from __future__ import annotations

import pytest

from oncebus.engine.store import Action, Kind, Mode, Outcome, Place, Policy, Settlement, State, Store, SubQueue
from oncebus.model.messages import PARTITION_SHIFT
from tests.engine.store.store_rows import QUEUE, SECOND, START, come_back, take

NEVER = 2**62


@pytest.mark.parametrize("dead_letter", [False, True])
@pytest.mark.parametrize("state", ["active", "deferred", "scheduled"])
def test_expired_messages_go_where_the_policy_says(store: Store, state: str, dead_letter: bool) -> None:
    policy = Policy(dead_letter_on_expiry=dead_letter)
    scheduled = NEVER if state == "scheduled" else None
    take(store, [{"entity": QUEUE, "expires": START + SECOND, "scheduled": scheduled}], {QUEUE: policy})
    with store.transaction():
        if state == "deferred":
            (message,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, policy, START)
            store.locks.settle(QUEUE, [Settlement(Action.DEFER, message.token or b"")], policy, START)
        assert store.messages.expire({QUEUE: policy}, START + SECOND - 1).handled == 0
        assert len(store.messages.peek(QUEUE, 0, 9, START + SECOND - 1)) == 1
        assert store.messages.peek(QUEUE, 0, 9, START + SECOND) == []
        assert store.messages.receive_deferred(QUEUE, [1], Mode.PEEK_LOCK, policy, START + SECOND) == []
        sweep = store.messages.expire({QUEUE: policy}, START + SECOND)
    assert sweep.handled == 1
    assert store.take_arrivals() == ({Place(QUEUE, SubQueue.DEAD_LETTER)} if dead_letter else set())
    dead = store.messages.peek(QUEUE, 0, 9, START + 99 * SECOND, sub_queue=SubQueue.DEAD_LETTER)
    assert [message.reason for message in dead] == (["TTLExpiredException"] if dead_letter else [])
    counts = store.entities.counts(QUEUE)
    assert (counts.active, counts.deferred, counts.scheduled, counts.dead_letter) == (0, 0, 0, int(dead_letter))


def test_the_sweep_goes_in_bounded_steps(store: Store) -> None:
    rows = [{"entity": QUEUE, "sequence": number, "expires": START} for number in range(1, 6)]
    take(store, rows, {QUEUE: Policy()})
    with store.transaction():
        sweeps = [store.messages.expire({QUEUE: Policy()}, START, limit=2) for _ in range(3)]
    assert [(sweep.handled, sweep.more) for sweep in sweeps] == [(2, True), (2, True), (1, False)]


def test_a_live_message_is_found_behind_many_expired_ones(store: Store) -> None:
    rows = [{"entity": QUEUE, "sequence": number, "expires": START} for number in range(1, 1200)]
    take(store, [*rows, {"entity": QUEUE, "sequence": 1200}], {QUEUE: Policy()})
    with store.transaction():
        assert [each.sequence for each in store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START)] == [1200]
    assert store.entities.counts(QUEUE).active == 1


def test_a_lock_delays_expiry_only_until_it_ends(store: Store) -> None:
    policy = Policy(lock_duration=10 * SECOND)
    take(store, [{"entity": QUEUE, "expires": START + SECOND}], {QUEUE: policy})
    with store.transaction():
        (message,) = store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, policy, START)
        assert store.messages.expire({QUEUE: policy}, START + 5 * SECOND).handled == 0
        abandoned = Settlement(Action.ABANDON, message.token or b"")
        assert store.locks.settle(QUEUE, [abandoned], policy, START + 5 * SECOND) == [Outcome.DONE]
        assert store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, policy, START + 5 * SECOND) == []


@pytest.mark.parametrize("late", [0, SECOND])
def test_a_due_message_of_a_queue_gets_a_new_number_once(store: Store, late: int) -> None:
    policies = {QUEUE: Policy(partitioned=True, requires_session=True)}
    partition = 2 << PARTITION_SHIFT
    when = START + SECOND
    row = {"entity": QUEUE, "sequence": partition + 1, "scheduled": when, "session": "s"}
    take(store, [row], policies)
    with store.transaction():
        sweep = store.scheduled.send_due(policies, when - 1)
        assert (sweep.handled, sweep.next) == (0, when)
        assert store.scheduled.send_due(policies, when + late).handled == 1
        sweep = store.scheduled.send_due(policies, NEVER)
        assert (sweep.handled, sweep.next) == (0, None)
        # It is in the pipeline: it cannot be received or cancelled and does not expire, but it is still shown.
        assert store.sessions.accept(QUEUE, None, policies[QUEUE], when + late) is None
        assert store.scheduled.cancel(QUEUE, [partition + 1]) == [Outcome.MESSAGE_NOT_FOUND]
        (shown,) = store.messages.peek(QUEUE, 0, 9, when + late)
        assert (shown.sequence, shown.state, store.entities.counts(QUEUE).scheduled) == (
            partition + 1,
            State.SCHEDULED,
            1,
        )
        assert store.sessions.names(QUEUE, 9) == ["s"]
    come_back(store, policies, partition + 40, when + late)
    with store.transaction():
        lock = store.sessions.accept(QUEUE, None, policies[QUEUE], when + late)
        (message,) = store.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, policies[QUEUE], when + late, lock)
    assert (message.sequence, message.enqueued, message.scheduled) == (partition + 40, when + late, when)
    assert message.enqueued_sequence == partition + 40
    assert (store.entities.counts(QUEUE).scheduled, store.entities.counts(QUEUE).active) == (0, 1)
    assert (QUEUE, 2, partition + 40, when + late) in store.progress.highest()


def test_a_message_that_expires_before_it_is_due_never_arrives(store: Store) -> None:
    take(store, [{"entity": QUEUE, "scheduled": START + 2, "expires": START + 1}], {QUEUE: Policy()})
    with store.transaction():
        store.scheduled.send_due({QUEUE: Policy()}, START + 2)
    assert store.entities.counts(QUEUE).size == 0


def test_only_messages_that_still_wait_can_be_cancelled(store: Store) -> None:
    rows = [{"entity": QUEUE, "sequence": 1}, {"entity": QUEUE, "sequence": 2, "scheduled": START + 1}]
    take(store, rows, {QUEUE: Policy()})
    with store.transaction():
        outcomes = store.scheduled.cancel(QUEUE, [1, 2, 2, 3])
        missing = Outcome.MESSAGE_NOT_FOUND
        assert outcomes == [missing, Outcome.DONE, missing, missing]
        assert store.scheduled.send_due({QUEUE: Policy()}, NEVER).handled == 0


def test_the_oldest_messages_are_deleted_first_and_locked_ones_never(store: Store) -> None:
    rows = [{"entity": QUEUE, "sequence": number, "time": START + number} for number in range(1, 7)]
    take(store, rows, {QUEUE: Policy()})
    with store.transaction():
        store.messages.receive(QUEUE, 1, Mode.PEEK_LOCK, Policy(), START)
        assert store.messages.delete_oldest(QUEUE, START + 5, 2) == 2
        assert [message.sequence for message in store.messages.peek(QUEUE, 0, 9, START)] == [1, 4, 5, 6]
        assert store.messages.delete_oldest(QUEUE, START + 5, 9) == 1
    assert store.entities.counts(QUEUE).size == 300


def test_a_resubmitted_dead_letter_gets_its_whole_time_to_live_again(store: Store) -> None:
    policy = Policy(Kind.SUBSCRIPTION, dead_letter_on_expiry=True)
    topic = {"entity": 1, "sequence": 30, "destination": QUEUE, "expires": START + 5}
    take(store, [topic], {QUEUE: policy})
    with store.transaction():
        store.messages.expire({QUEUE: policy}, START + 5)
        assert store.dead_letters.resubmit(QUEUE, [1, 2], policy, START + 100) == [
            Outcome.DONE,
            Outcome.MESSAGE_NOT_FOUND,
        ]
    (message,) = store.messages.peek(QUEUE, 0, 9, START + 100)
    assert (message.sequence, message.enqueued, message.expires, message.enqueued_sequence) == (
        2,
        START + 100,
        START + 105,
        30,
    )
    assert (store.entities.counts(QUEUE).active, store.entities.counts(QUEUE).dead_letter) == (1, 0)
