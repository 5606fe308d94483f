"""The locks of messages: settling locked messages, and renewing or expiring their locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from oncebus.amqp.head import with_application_properties
from oncebus.amqp.types import DecodeError
from oncebus.engine.store.sessions import give_back, is_held
from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import complete, dead_letter, policy_of, put_back
from oncebus.engine.store.values import Action, Copy, Outcome, Policy, SessionLock, Settlement, Stage, SubQueue, Sweep


class Locks:
    """The locks that receivers have on messages."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def settle(
        self,
        entity: int,
        settlements: Sequence[Settlement],
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
    ) -> list[Outcome]:
        """Settle messages. Return an outcome for each.

        With `session`, the outcome distinguishes a lost session from a lost lock.
        """
        tables = self._tables.for_change()
        outcomes: list[Outcome] = []
        known = tables.locks.with_tokens([settlement.token for settlement in settlements])
        completed = []
        for settlement in settlements:
            found = find_settled(tables, entity, settlement, known.get(settlement.token), now, session)
            if isinstance(found, Outcome):
                outcomes.append(found)
                continue
            # A token can be used once only.
            del known[settlement.token]
            if settlement.action is Action.COMPLETE:
                completed.append(found)
            else:
                settle(tables, found, settlement, policy)
            outcomes.append(Outcome.DONE)
        complete(tables, completed)
        return outcomes

    def check_settlements(
        self, entity: int, settlements: Sequence[Settlement], now: int, session: SessionLock | None = None
    ) -> list[int | Outcome]:
        """Return the number of each message that `settle` would settle, or why it would not. Settles nothing."""
        tables = self._tables
        known = tables.locks.with_tokens([settlement.token for settlement in settlements])
        found = [
            find_settled(tables, entity, settlement, known.pop(settlement.token, None), now, session)
            for settlement in settlements
        ]
        return [each if isinstance(each, Outcome) else each.sequence for each in found]

    def renew(
        self, entity: int, tokens: Sequence[bytes], policy: Policy, now: int, session: SessionLock | None = None
    ) -> list[int | Outcome]:
        """Renew the locks of messages. Return the new end of each lock, or why it cannot be renewed.

        A message of a session keeps the end of the session's lock.
        """
        tables = self._tables.for_change()
        answers: list[int | Outcome] = []
        for token in tokens:
            found = find_held(tables, entity, tables.locks.with_token(token), None, now, session)
            if isinstance(found, Outcome):
                answers.append(found)
            elif found.locked_until is None:
                row = tables.sessions.get(entity, found.session_key)
                answers.append(row.locked_until if row and row.locked_until is not None else Outcome.SESSION_LOCK_LOST)
            else:
                # Never shorter: the entity may have had a longer lock duration when the lock was granted.
                until = max(found.locked_until, now + policy.lock_duration)
                tables.locks.extend(found, until)
                answers.append(until)
        return answers

    def ends(
        self, entity: int, tokens: Sequence[bytes], now: int, session: SessionLock | None = None
    ) -> list[int | None]:
        """Return when the locks with these tokens expire; None for each that is lost."""
        tables = self._tables
        answers: list[int | None] = []
        for token in tokens:
            found = find_held(tables, entity, tables.locks.with_token(token), None, now, session)
            if isinstance(found, Outcome):
                answers.append(None)
            elif found.locked_until is None:
                row = tables.sessions.get(entity, found.session_key)
                answers.append(None if row is None else row.locked_until)
            else:
                answers.append(found.locked_until)
        return answers

    def last_end(self) -> int:
        """Return when the last lock of a message or session expires; 0 if nothing is locked."""
        return max(self._tables.locks.last_end(), self._tables.sessions.last_end())

    def expire(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Put back messages and sessions whose lock has expired. `receive` does the same for its entity."""
        tables = self._tables.for_change()
        sweep = Sweep()
        copies = tables.locks.expired_locks(now, limit)
        for copy in copies:
            put_back(tables, copy, policy_of(policies, copy.entity))
        rows = tables.sessions.expired_locks(now, limit)
        for row in rows:
            give_back(tables, row, policy_of(policies, row.entity))
        sweep.handled = len(copies) + len(rows)
        sweep.more = limit in (len(copies), len(rows))
        ends = [end for end in (tables.locks.first_end(), tables.sessions.first_end()) if end is not None]
        sweep.next = min(ends, default=None)
        return sweep


def find_held(
    tables: Tables, entity: int, copy: Copy | None, sequence: int | None, now: int, session: SessionLock | None
) -> Copy | Outcome:
    """Return the message with a lock token if the lock still holds, else why it does not."""
    if copy is not None and copy.entity == entity and (sequence is None or sequence == copy.sequence):
        if copy.locked_until is not None:
            return copy if now < copy.locked_until else Outcome.MESSAGE_LOCK_LOST
        return copy if is_held(tables, entity, copy.session_key, None, now) else Outcome.SESSION_LOCK_LOST
    if session is not None and not is_held(tables, entity, session.key, session.token, now):
        return Outcome.SESSION_LOCK_LOST
    if sequence is not None and not any(tables.messages.at(entity, place, sequence) for place in SubQueue):
        return Outcome.MESSAGE_NOT_FOUND
    return Outcome.MESSAGE_LOCK_LOST


def find_settled(
    tables: Tables, entity: int, settlement: Settlement, copy: Copy | None, now: int, session: SessionLock | None
) -> Copy | Outcome:
    """Return the message with the lock token of a settlement if it can be settled so, else why it cannot."""
    found = find_held(tables, entity, copy, settlement.sequence, now, session)
    if settlement.action is Action.DEAD_LETTER and not isinstance(found, Outcome) and found.sub_queue != SubQueue.MAIN:
        return Outcome.ALREADY_DEAD_LETTERED
    return found


def settle(tables: Tables, copy: Copy, settlement: Settlement, policy: Policy) -> None:
    """Settle a message that `find_settled` returned. Any action except complete."""
    head = settlement.head
    if settlement.properties:
        before = tables.messages.full(copy.id).head if head is None else head
        # A head that cannot be decoded stays unchanged.
        with suppress(DecodeError):
            head = with_application_properties(before, settlement.properties)
    if head is not None:
        tables.messages.set_head(copy, head)
    match settlement.action:
        case Action.ABANDON:
            put_back(tables, copy, policy)
        case Action.RELEASE:
            put_back(tables, copy, policy, counted=False)
        case Action.DEFER:
            tables.locks.unlock(copy, Stage.DEFERRED, copy.deliveries)
        case Action.DEAD_LETTER:
            # As in the service: the receiver's decision is not a failed attempt.
            dead_letter(tables, copy, policy, settlement.reason, settlement.description, counted=False)
