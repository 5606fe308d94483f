from __future__ import annotations

import pytest

from oncebus.amqp.head import Properties, application_properties, message_id
from oncebus.amqp.message import encode_message
from oncebus.engine.store import (
    Action,
    Message,
    Mode,
    Outcome,
    Place,
    Policy,
    SessionLock,
    SessionLockLost,
    Settlement,
    State,
    Store,
    SubQueue,
)
from tests.engine.store.store_rows import QUEUE, SECOND, START, come_back, take

POLICY = Policy(lock_duration=10 * SECOND, max_delivery_count=2)
SESSIONS = Policy(lock_duration=10 * SECOND, requires_session=True)
NOWHERE = b"0" * 16


def hold(store: Store, count: int = 1, now: int = START, sub_queue: SubQueue = SubQueue.MAIN) -> list[Message]:
    with store.transaction():
        return store.messages.receive(QUEUE, count, Mode.PEEK_LOCK, POLICY, now, sub_queue=sub_queue)


def settle(store: Store, message: Message, action: Action, now: int = START, **more: object) -> Outcome:
    settlement = Settlement(action, message.token or b"", **more)  # type: ignore[arg-type]
    with store.transaction():
        return store.locks.settle(QUEUE, [settlement], POLICY, now)[0]


@pytest.fixture
def queue(store: Store) -> Store:
    take(store, [{"entity": QUEUE, "sequence": number} for number in (1, 2, 3)], {QUEUE: POLICY})
    return store


def test_a_lock_ends_at_its_end(queue: Store) -> None:
    (message,) = hold(queue)
    assert settle(queue, message, Action.COMPLETE, START + 10 * SECOND) is Outcome.MESSAGE_LOCK_LOST
    assert settle(queue, message, Action.COMPLETE, START + 10 * SECOND - 1) is Outcome.DONE


@pytest.mark.parametrize(
    ("token", "sequence", "outcome"),
    [
        ("right", None, Outcome.DONE),
        ("right", 1, Outcome.DONE),
        ("right", 2, Outcome.MESSAGE_LOCK_LOST),
        ("right", 77, Outcome.MESSAGE_NOT_FOUND),
        ("wrong", None, Outcome.MESSAGE_LOCK_LOST),
        ("wrong", 1, Outcome.MESSAGE_LOCK_LOST),
        ("wrong", 77, Outcome.MESSAGE_NOT_FOUND),
    ],
)
def test_a_message_is_named_by_its_token_and_its_number(
    queue: Store, token: str, sequence: int | None, outcome: Outcome
) -> None:
    (message,) = hold(queue)
    given = message.token if token == "right" else NOWHERE
    assert given is not None
    with queue.transaction():
        assert queue.locks.settle(QUEUE, [Settlement(Action.COMPLETE, given, sequence)], POLICY, START) == [outcome]
    assert queue.entities.counts(QUEUE).active == (2 if outcome is Outcome.DONE else 3)


def test_a_token_is_only_good_for_its_own_entity(queue: Store) -> None:
    (message,) = hold(queue)
    with queue.transaction():
        wrong = queue.locks.settle(QUEUE + 1, [Settlement(Action.COMPLETE, message.token or b"")], POLICY, START)
    assert wrong == [Outcome.MESSAGE_LOCK_LOST]


def test_an_abandoned_message_comes_back_first_with_its_new_properties(queue: Store) -> None:
    (message,) = hold(queue)
    assert settle(queue, message, Action.ABANDON, head=b"longer head") is Outcome.DONE
    (again,) = hold(queue)
    assert (again.sequence, again.deliveries, again.head) == (1, 2, b"longer head")
    assert queue.entities.size(QUEUE) == 300 + len(b"longer head") - len(b"head")
    assert settle(queue, again, Action.COMPLETE) is Outcome.DONE
    assert queue.entities.size(QUEUE) == 200


def test_properties_are_added_to_those_of_the_message(queue: Store) -> None:
    head, _ = encode_message(Properties(message_id="m"), {"kept": 1, "changed": 1}, b"")
    settle(queue, hold(queue)[0], Action.ABANDON, head=head)
    settle(queue, hold(queue)[0], Action.DEFER, properties={"changed": "yes", "added": True})
    (deferred, second, _) = queue.messages.peek(QUEUE, 0, 9, START)
    assert application_properties(deferred.head) == {"kept": 1, "changed": "yes", "added": True}
    assert message_id(deferred.head) == "m"
    # A message whose head cannot be decoded is deferred unchanged.
    assert settle(queue, hold(queue)[0], Action.DEFER, properties={"added": True}) is Outcome.DONE
    assert queue.messages.peek(QUEUE, 2, 1, START)[0].head == second.head == b"head"


def test_after_the_last_attempt_a_message_is_a_dead_letter(queue: Store) -> None:
    for _ in range(2):
        settle(queue, hold(queue)[0], Action.ABANDON)
    assert [message.sequence for message in hold(queue, 9)] == [2, 3]
    (dead,) = hold(queue, sub_queue=SubQueue.DEAD_LETTER)
    assert (dead.sequence, dead.reason, dead.deliveries) == (1, "MaxDeliveryCountExceeded", 2)
    assert dead.description == "Message could not be consumed after 2 delivery attempts."
    for _ in range(5):
        assert settle(queue, dead, Action.ABANDON) is Outcome.DONE
        (dead,) = hold(queue, sub_queue=SubQueue.DEAD_LETTER)
    assert (dead.reason, dead.deliveries) == ("MaxDeliveryCountExceeded", 2)


def test_no_attempt_counts_in_a_dead_letter_queue(queue: Store) -> None:
    settle(queue, hold(queue)[0], Action.ABANDON)
    (message,) = hold(queue)
    assert message.deliveries == 2
    settle(queue, message, Action.DEAD_LETTER)
    # Nor does the attempt that ended with the dead letter.
    for action in (Action.ABANDON, Action.RELEASE, Action.DEFER):
        (dead,) = hold(queue, sub_queue=SubQueue.DEAD_LETTER)
        assert dead.deliveries == 1
        settle(queue, dead, action)
    (peeked,) = queue.messages.peek(QUEUE, 0, 9, START, sub_queue=SubQueue.DEAD_LETTER)
    assert peeked.deliveries == 1


def test_a_dead_letter_cannot_be_dead_lettered_again(queue: Store) -> None:
    settle(queue, hold(queue)[0], Action.DEAD_LETTER, reason="first")
    (dead,) = hold(queue, sub_queue=SubQueue.DEAD_LETTER)
    assert settle(queue, dead, Action.DEAD_LETTER, reason="second") is Outcome.ALREADY_DEAD_LETTERED
    (peeked,) = queue.messages.peek(QUEUE, 0, 9, START, sub_queue=SubQueue.DEAD_LETTER)
    assert peeked.reason == "first"
    # It is still locked for its receiver.
    assert settle(queue, dead, Action.COMPLETE) is Outcome.DONE


def test_a_released_message_counts_as_never_delivered(queue: Store) -> None:
    for _ in range(5):
        (message,) = hold(queue)
        assert message.deliveries == 1
        settle(queue, message, Action.RELEASE)


def test_a_dead_letter_has_its_reason(queue: Store) -> None:
    settle(queue, hold(queue)[0], Action.DEAD_LETTER, reason="r", description="d", head=b"changed")
    (dead,) = queue.messages.peek(QUEUE, 0, 9, START, sub_queue=SubQueue.DEAD_LETTER)
    assert (dead.reason, dead.description, dead.source, dead.head) == ("r", "d", QUEUE, b"changed")
    assert (queue.entities.counts(QUEUE).active, queue.entities.counts(QUEUE).dead_letter) == (2, 1)


def test_a_deferred_message_is_only_found_by_its_number(queue: Store) -> None:
    settle(queue, hold(queue)[0], Action.DEFER)
    assert queue.entities.counts(QUEUE).deferred == 1
    assert [message.sequence for message in hold(queue, 9)] == [2, 3]
    assert queue.messages.peek(QUEUE, 0, 1, START)[0].state is State.DEFERRED
    with queue.transaction():
        (message,) = queue.messages.receive_deferred(QUEUE, [3, 1, 1, 50], Mode.PEEK_LOCK, POLICY, START)
        assert queue.messages.receive_deferred(QUEUE, [1], Mode.PEEK_LOCK, POLICY, START) == []
    assert (message.sequence, message.deliveries, message.state) == (1, 2, State.DEFERRED)
    assert settle(queue, message, Action.RELEASE) is Outcome.DONE
    with queue.transaction():
        assert len(queue.messages.receive_deferred(QUEUE, [1], Mode.RECEIVE_AND_DELETE, POLICY, START)) == 1
    assert queue.entities.counts(QUEUE).deferred == 0


def test_receive_and_delete_locks_a_message_with_a_body_file(store: Store) -> None:
    take(
        store,
        [{"entity": QUEUE, "sequence": 1, "body_file": "file"}, {"entity": QUEUE, "sequence": 2}],
        {QUEUE: POLICY},
    )
    with store.transaction():
        large, small = store.messages.receive(QUEUE, 9, Mode.RECEIVE_AND_DELETE, POLICY, START)
    assert (small.token, small.locked_until, small.deliveries) == (None, None, 1)
    assert (large.locked_until, large.deliveries) == (START + 10 * SECOND, 1)
    assert (store.entities.counts(QUEUE).active, store.body_files.list_unused()) == (1, [])
    assert settle(store, large, Action.COMPLETE) is Outcome.DONE
    assert (store.entities.counts(QUEUE).active, store.body_files.list_unused()) == (0, ["file"])


def test_renewing_moves_the_end(queue: Store) -> None:
    (message,) = hold(queue)
    assert message.token is not None
    with queue.transaction():
        answers = queue.locks.renew(QUEUE, [message.token, NOWHERE], POLICY, START + SECOND)
    assert answers == [START + 11 * SECOND, Outcome.MESSAGE_LOCK_LOST]
    assert [each.sequence for each in hold(queue, 9, START + 10 * SECOND)] == [2, 3]
    assert settle(queue, message, Action.COMPLETE, START + 10 * SECOND) is Outcome.DONE


def test_expired_locks_are_swept_and_their_places_reported(queue: Store) -> None:
    hold(queue, 2)
    with queue.transaction():
        assert queue.locks.expire({QUEUE: POLICY}, START + 9 * SECOND).handled == 0
        sweep = queue.locks.expire({QUEUE: POLICY}, START + 10 * SECOND)
    assert (sweep.handled, queue.take_arrivals()) == (2, {Place(QUEUE, SubQueue.MAIN)})
    assert queue.take_arrivals() == set()


@pytest.fixture
def sessions(store: Store) -> Store:
    rows = [{"entity": QUEUE, "sequence": number, "session": each} for number, each in enumerate("abab", 1)]
    take(store, rows, {QUEUE: SESSIONS})
    return store


def accept(store: Store, session: str | None = None, now: int = START) -> SessionLock:
    with store.transaction():
        lock = store.sessions.accept(QUEUE, session, SESSIONS, now)
    assert lock is not None
    return lock


def hold_in(store: Store, lock: SessionLock, count: int = 9, now: int = START) -> list[Message]:
    with store.transaction():
        return store.messages.receive(QUEUE, count, Mode.PEEK_LOCK, SESSIONS, now, lock)


def test_each_receiver_gets_the_session_with_the_oldest_message(sessions: Store) -> None:
    first, second = accept(sessions), accept(sessions)
    assert (first.session, second.session) == ("a", "b")
    assert [message.sequence for message in hold_in(sessions, second)] == [2, 4]
    with sessions.transaction():
        assert sessions.sessions.accept(QUEUE, None, SESSIONS, START) is None
        sessions.sessions.release(first, SESSIONS)
    assert sessions.take_arrivals() == {Place(QUEUE, SubQueue.MAIN)}
    assert accept(sessions).session == "a"


def test_messages_are_renewed_and_lost_with_the_lock_of_their_session(sessions: Store) -> None:
    lock = accept(sessions)
    one, two = hold_in(sessions, lock)
    with sessions.transaction():
        lock = sessions.sessions.renew(lock, SESSIONS, START + 9 * SECOND)
        later = START + 15 * SECOND
        assert sessions.locks.renew(QUEUE, [one.token or b""], SESSIONS, later) == [START + 19 * SECOND]
        assert sessions.locks.settle(QUEUE, [Settlement(Action.COMPLETE, one.token or b"")], SESSIONS, later) == [
            Outcome.DONE
        ]
        late = Settlement(Action.COMPLETE, two.token or b"")
        assert sessions.locks.settle(QUEUE, [late], SESSIONS, START + 19 * SECOND) == [Outcome.SESSION_LOCK_LOST]
        sessions.locks.expire({QUEUE: SESSIONS}, START + 19 * SECOND)
        outcomes = sessions.locks.settle(QUEUE, [late], SESSIONS, START + 19 * SECOND, lock)
    assert outcomes == [Outcome.SESSION_LOCK_LOST]
    assert sessions.take_arrivals() == {Place(QUEUE, SubQueue.MAIN)}
    with pytest.raises(SessionLockLost):
        hold_in(sessions, lock, now=START + 19 * SECOND)
    (again,) = hold_in(sessions, accept(sessions, "a", START + 19 * SECOND), now=START + 19 * SECOND)
    assert (again.sequence, again.deliveries) == (3, 2)


def test_state_is_durable_and_needs_the_lock(sessions: Store) -> None:
    lock = accept(sessions, "new")
    with sessions.transaction():
        sessions.sessions.set_state(lock, b"\0state", START)
        sessions.sessions.release(lock, SESSIONS)
    assert sessions.sessions.state(QUEUE, "new") == b"\0state"
    assert sessions.sessions.names(QUEUE, 9) == ["a", "b", "new"]
    assert sessions.sessions.names(QUEUE, 1, after="a") == ["b"]
    assert sessions.sessions.names(QUEUE, 9, updated_since=START) == ["new"]
    assert sessions.sessions.names(QUEUE, 9, updated_since=START + 1) == []
    with pytest.raises(SessionLockLost), sessions.transaction():
        sessions.sessions.set_state(lock, None, START)
    lock = accept(sessions, "new")
    with sessions.transaction():
        sessions.sessions.set_state(lock, None, START)
        sessions.sessions.release(lock, SESSIONS)
    assert sessions.sessions.names(QUEUE, 9) == ["a", "b"]
    assert sessions.sessions.state(QUEUE, "never heard of") is None


def test_dead_letters_of_sessions_are_received_without_one(sessions: Store) -> None:
    lock = accept(sessions)
    (message, _) = hold_in(sessions, lock)
    with sessions.transaction():
        sessions.locks.settle(QUEUE, [Settlement(Action.DEAD_LETTER, message.token or b"")], SESSIONS, START)
        (dead,) = sessions.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, SESSIONS, START, sub_queue=SubQueue.DEAD_LETTER)
        assert (dead.session, dead.locked_until) == ("a", START + 10 * SECOND)
        assert sessions.dead_letters.resubmit(QUEUE, [dead.sequence], SESSIONS, START) == [Outcome.MESSAGE_NOT_FOUND]
        sessions.locks.settle(QUEUE, [Settlement(Action.ABANDON, dead.token or b"")], SESSIONS, START)
        assert sessions.dead_letters.resubmit(QUEUE, [dead.sequence], SESSIONS, START) == [Outcome.DONE]
        assert sessions.dead_letters.resubmit(QUEUE, [dead.sequence], SESSIONS, START) == [Outcome.MESSAGE_NOT_FOUND]
    come_back(sessions, {QUEUE: SESSIONS}, 50)
    with sessions.transaction():
        (back,) = sessions.messages.receive(QUEUE, 9, Mode.PEEK_LOCK, SESSIONS, START, lock)
    assert (back.sequence, back.deliveries, back.reason, back.session) == (50, 1, None, "a")


def test_peeking_shows_one_session_or_all(sessions: Store) -> None:
    hold_in(sessions, accept(sessions, "b"), 1)
    assert [message.sequence for message in sessions.messages.peek(QUEUE, 2, 9, START)] == [2, 3, 4]
    assert [message.sequence for message in sessions.messages.peek(QUEUE, 0, 9, START, "b")] == [2, 4]
    assert [message.sequence for message in sessions.messages.peek(QUEUE, 0, 1, START)] == [1]


def test_a_session_without_messages_and_state_is_forgotten(store: Store) -> None:
    policies = {QUEUE: SESSIONS}
    rows = [
        {"entity": QUEUE, "sequence": 1, "session": "expired", "expires": START},
        {"entity": QUEUE, "sequence": 2, "session": "cancelled", "scheduled": START},
        {"entity": QUEUE, "sequence": 3, "session": "deleted"},
    ]
    take(store, rows, policies)
    assert store.sessions.names(QUEUE, 9) == ["cancelled", "deleted", "expired"]
    with store.transaction():
        store.messages.expire(policies, START)
        store.scheduled.cancel(QUEUE, [2])
        store.messages.delete_oldest(QUEUE, START + 1, 9)
        assert store.sessions.accept(QUEUE, None, SESSIONS, START) is None
    assert store._connection.execute("SELECT count(*) FROM session").fetchone() == (0,)


def test_a_session_whose_oldest_message_expired_loses_its_turn(store: Store) -> None:
    rows = [
        {"entity": QUEUE, "sequence": 1, "session": "a", "expires": START},
        {"entity": QUEUE, "sequence": 2, "session": "b"},
        {"entity": QUEUE, "sequence": 3, "session": "a"},
    ]
    take(store, rows, {QUEUE: SESSIONS})
    assert [accept(store).session, accept(store).session] == ["b", "a"]
