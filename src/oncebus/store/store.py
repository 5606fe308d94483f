"""The delivery store: what receivers see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Self

import pyarrow as pa

from oncebus.store import drops, quarantine, receiving, sessions, settling, sweeping, transfers
from oncebus.store.ingest import CATALOGUE, JUDGED, ingest
from oncebus.store.rules import discard
from oncebus.store.sql import times
from oncebus.store.sql.connection import Connection
from oncebus.store.sql.tables import Tables
from oncebus.store.values import (
    Counts,
    Drop,
    Highest,
    IngestReport,
    Message,
    Mode,
    Outcome,
    Policy,
    Quarantined,
    SessionLock,
    Settlement,
    Stage,
    SubQueue,
    Sweep,
    Transfer,
)

_TOKEN_BYTES = 16


class Store:
    """One file, one process, one thread at a time. No clock is read: `now` is an argument.

    Whatever changes something is called inside `with store.transaction():`; its answer may be told to others once the
    block has ended well. Where the block fails, nothing in it has happened. A full disk raises `StoreFull`.
    """

    def __init__(self, connection: Connection, random: Callable[[int], bytes], drops_kept: int, drops_age: int) -> None:
        self._connection = connection
        self._tables = Tables.over(connection)
        self._random = random
        self._drops_kept = drops_kept
        self._drops_age = drops_age

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        start: int = 0,
        random: Callable[[int], bytes] = os.urandom,
        drops_kept: int = drops.KEPT,
        drops_age: int = drops.AGE,
    ) -> Self:
        """Open the store at a path, made where missing. Takes no longer for many messages than for none.

        A new store expects the inbox commit `start` + 1 first. `random` gives so many bytes for a lock token. Raises
        `StoreInUse` where another process has it, `StoreMismatch` where the file is another's or newer.
        """
        return cls(Connection.open(path, start), random, drops_kept, drops_age)

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        """A block whose calls become durable together, with one fsync, as it ends. Blocks do not nest."""
        return self._connection.transaction()

    # Arrival

    def ingest(
        self, entry_rows: pa.Table, first_commit: int, last_commit: int, policies: Mapping[int, Policy], now: int
    ) -> IngestReport:
        """Take one outbox entry: rows of OUTBOX_SCHEMA by position, from the inbox commits first to last.

        Raises `EntryRefused` unless the entry begins at `position()` + 1. A row for an entity that is not in `policies`
        is discarded and counted; a row whose origin was taken before is ignored.
        """
        return ingest(
            self._change(),
            entry_rows,
            first_commit,
            last_commit,
            policies,
            now,
            drops_kept=self._drops_kept,
            drops_age=self._drops_age,
        )

    def position(self) -> int:
        """The last inbox commit that was taken."""
        return self._tables.records.position()

    def highest(self) -> list[Highest]:
        """The highest number and time of every partition of every entity that were ever ingested.

        With those of the inbox beyond `position()`, all that was ever given out. Subscriptions have the time 0.
        """
        return self._tables.records.all_highest()

    def newest_time(self) -> int:
        """The highest time ever ingested, of entities that are gone too; 0 where there is none."""
        return self._tables.records.time()

    def last_lock_end(self) -> int:
        """When the last of all locks ends, of messages and sessions; 0 where nothing is held."""
        return max(self._tables.messages.last_end(), self._tables.sessions.last_end())

    def judged_time(self) -> int:
        """The highest time of a message that was looked up in the ledger, and ingested; 0 where there is none."""
        return self._tables.records.mark(JUDGED)

    def forget_judged(self) -> None:
        """Begin anew with `judged_time`: there is a new ledger."""
        self._change().records.forget_mark(JUDGED)

    def catalogue_version(self) -> int:
        """The newest version of the catalogue that is known to have been in force."""
        return self._tables.records.mark(CATALOGUE)

    def note_catalogue(self, version: int) -> None:
        """A version of the catalogue is in force."""
        self._change().records.raise_mark(CATALOGUE, version)

    # Receiving

    def receive(
        self,
        entity: int,
        count: int,
        mode: Mode,
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Up to `count` messages by sequence number: active, not held, not expired; of the held `session` if given.

        With `most_bytes` no more than are so large together, at least one; so too for the other ways to read.
        With peek-lock each bears a token and the end of its lock (in a session: the session's), and the attempt counts
        even if everything dies at once. So does one that is to be deleted while its body lies in a file: complete it
        when the body has been read. Raises `SessionLockLost`.
        """
        return receiving.receive(
            self._change(), entity, count, mode, policy, now, session, sub_queue, self._token, most_bytes
        )

    def receive_deferred(
        self,
        entity: int,
        sequences: Sequence[int],
        mode: Mode,
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """The deferred messages with these numbers, in this order. One that is not there, or held, is left out."""
        return receiving.receive_deferred(
            self._change(), entity, sequences, mode, policy, now, session, sub_queue, self._token, most_bytes
        )

    def peek(
        self,
        entity: int,
        from_sequence: int,
        count: int,
        now: int,
        session: str | None = None,
        sub_queue: SubQueue = SubQueue.MAIN,
        most_bytes: int | None = None,
    ) -> list[Message]:
        """Messages in any state from a number on. Nothing is locked; what has expired is not shown."""
        return self._tables.messages.from_sequence(entity, sub_queue, from_sequence, count, now, session, most_bytes)

    def settle(
        self,
        entity: int,
        settlements: Sequence[Settlement],
        policy: Policy,
        now: int,
        session: SessionLock | None = None,
    ) -> list[Outcome]:
        """Settle messages; an answer for each. `session` tells a lost session from a lost message."""
        return settling.settle(self._change(), entity, settlements, policy, now, session)

    def renew_locks(
        self, entity: int, tokens: Sequence[bytes], policy: Policy, now: int, session: SessionLock | None = None
    ) -> list[int | Outcome]:
        """Hold messages longer: the new end for each, or why not. In a session the session's end stands."""
        return settling.renew(self._change(), entity, tokens, policy, now, session)

    def locked_until(
        self, entity: int, tokens: Sequence[bytes], now: int, session: SessionLock | None = None
    ) -> list[int | None]:
        """Until when messages are held, by the locks of these tokens; None for each that is held no more."""
        return settling.locked_until(self._tables, entity, tokens, now, session)

    # Sessions

    def accept_session(self, entity: int, session: str | None, policy: Policy, now: int) -> SessionLock | None:
        """Hold a session; without a name, the free one with the oldest message, None where there is none.

        Raises `SessionCannotBeLocked` where the named one is held.
        """
        return sessions.accept(self._change(), entity, session, policy, now, self._token)

    def renew_session(self, lock: SessionLock, policy: Policy, now: int) -> SessionLock:
        """Hold a session and what was received in it longer. Raises `SessionLockLost`."""
        return sessions.renew(self._change(), lock, policy, now)

    def release_session(self, lock: SessionLock, policy: Policy) -> Sweep:
        """Let a session go; what was received in it and not settled is put back. A lock that is lost is no error."""
        return Sweep(arrived=sessions.release(self._change(), lock, policy))

    def session_state(self, entity: int, session: str) -> bytes | None:
        """The state of a session."""
        row = self._tables.sessions.get(entity, session)
        return None if row is None else row.state

    def set_session_state(self, lock: SessionLock, state: bytes | None, now: int) -> None:
        """Replace the state of a session that is held. Raises `SessionLockLost`."""
        tables = self._change()
        sessions.check_held(tables, lock.entity, lock.session, lock.token, now)
        tables.sessions.set_state(lock.entity, lock.session, state, now)

    def list_sessions(
        self, entity: int, limit: int, updated_since: int | None = None, after: str | None = None
    ) -> list[str]:
        """Sessions with messages or state, by name; or those whose state was set at a time or later."""
        return self._tables.sessions.names(entity, updated_since, after, limit)

    # Time

    def expire_locks(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Put back what was held too long. Receiving from an entity does the same for that entity by itself."""
        return sweeping.expire_locks(self._change(), policies, now, limit)

    def expire(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Delete or dead-letter what is past its time. Nothing expired is ever handed out, swept or not."""
        return sweeping.expire_messages(self._change(), policies, now, limit)

    def due(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Hand scheduled messages whose time has come to the pump: they are enqueued by way of the inbox.

        Until they have left, they are shown and counted as scheduled, but cannot be cancelled any more.
        """
        return sweeping.due(self._change(), policies, now, limit)

    def cancel_scheduled(self, entity: int, sequences: Sequence[int]) -> list[Outcome]:
        """Delete scheduled messages that have not fallen due."""
        tables = self._change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, SubQueue.MAIN, sequence)
            if copy is None or copy.stage != Stage.SCHEDULED:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
            else:
                discard(tables, copy)
                outcomes.append(Outcome.DONE)
        return outcomes

    # The requeue pump

    def begin_pump(self, appended: int) -> None:
        """Take up what an earlier broker left; called once, before the first `pump_batch`.

        The store must have taken all that the inbox held at the start; `appended` is the inbox's newest commit.
        """
        self._change().records.settle_taken(appended)

    def pump_batch(self, policies: Mapping[int, Policy], appended: int, limit: int = 1000) -> list[Transfer]:
        """Messages to append to the inbox, after the transaction has ended; then call `pumped` or `pump_refused`.

        `appended` is the inbox's newest commit. What was appended before a crash and has arrived is not listed again.
        """
        return transfers.pump_batch(self._change(), policies, appended, limit)

    def pumped(self, batch: Sequence[Transfer], commit: int) -> None:
        """These are durable in the inbox, none of them beyond this commit."""
        transfers.pumped(self._change(), batch, commit)

    def pump_refused(self, batch: Sequence[Transfer], reason: str, description: str) -> None:
        """These were not appended, and never will be: to the transfer dead letters of their source."""
        transfers.refuse(self._change(), batch, reason, description)

    # Upkeep

    def counts(self, entity: int) -> Counts:
        """What an entity holds now and what was counted since it was made."""
        return self._tables.counters.of(entity)

    def size_of(self, entity: int) -> int:
        """The bytes that an entity holds, without looking at its messages."""
        return self._tables.counters.size(entity)

    def delete_entities(self, entities: Sequence[int], appended: int) -> None:
        """Forget entities and all they hold. No row with an origin in them may stand beyond the commit `appended`."""
        tables = self._change()
        for entity in entities:
            for sequence, blob in tables.messages.remove_all(entity):
                tables.records.settle_origin(entity, sequence, appended, blob)
            tables.sessions.delete_all(entity)
            tables.records.delete_entity(entity)
            tables.records.settle_origins_of(entity, appended)
        tables.counters.delete(entities)

    def batch_delete(self, entity: int, enqueued_before: int, count: int, sub_queue: SubQueue = SubQueue.MAIN) -> int:
        """Delete the oldest active messages that nobody holds. Answers how many."""
        tables = self._change()
        copies = tables.messages.oldest(entity, sub_queue, enqueued_before, count)
        for copy in copies:
            discard(tables, copy)
        return len(copies)

    def resubmit(
        self,
        entity: int,
        sequences: Sequence[int],
        policy: Policy,
        now: int,
        sub_queue: SubQueue = SubQueue.DEAD_LETTER,
        *,
        behind: int = 0,
    ) -> list[Outcome]:
        """Make dead letters new messages of their entity: a new number, no deliveries, their time to live from now.

        A queue's are handed to the pump. One that a receiver holds is not found. `behind` is how far `now` is behind
        the time that expiry goes by.
        """
        tables = self._change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, sub_queue, sequence)
            if copy is None or copy.stage not in (Stage.READY, Stage.DEFERRED) or sub_queue is SubQueue.MAIN:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
                continue
            expires = None if copy.expires is None else now + behind + max(copy.expires - copy.enqueued, 0)
            sweeping.resubmit(tables, copy, policy, now, expires)
            outcomes.append(Outcome.DONE)
        return outcomes

    def unknown_blobs(self, names: Iterable[str]) -> list[str]:
        """Those of these body files that no row which was taken ever named."""
        return self._tables.blobs.unknown(names)

    def needed_blobs(self) -> list[str]:
        """Names of body files that messages need."""
        return self._tables.blobs.needed()

    def unused_blobs(self, limit: int = 1000) -> list[str]:
        """Names of body files that no message needs any more."""
        return self._tables.blobs.unused(limit)

    def forget_blobs(self, names: Sequence[str]) -> None:
        """Their files are gone."""
        self._change().blobs.forget(names)

    def bring_back(self, now: int, longest_lock: int) -> int:
        """Let no time that the broker has written lie in the future; how many messages were enqueued later than now.

        They are enqueued now, and live for as long as they would have lived from then on. Locks end `longest_lock` from
        now at the latest. What senders ask for, the time that a message is scheduled for, stays.
        """
        self._connection.need_transaction()
        return times.bring_back(self._connection, now, longest_lock)

    # Records

    def drops(
        self,
        entity: int,
        message_id: str | None = None,
        since: int | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Drop]:
        """Dropped duplicates of an entity in the order they came; `after` is the last `number` of the page before."""
        return self._tables.records.drops(entity, message_id, since, limit, after)

    def prune_drops(self, now: int) -> int:
        """Forget drops that are too old, of entities at rest too. Answers how many."""
        tables = self._change()
        forgotten, entity = 0, tables.records.next_with_drops(-1)
        while entity is not None:
            forgotten += drops.forget_old(tables, entity, now - self._drops_age)
            entity = tables.records.next_with_drops(entity)
        return forgotten

    def quarantined(self, entity: int | None = None, limit: int = 100, after: int = 0) -> list[Quarantined]:
        """Rows that could not be processed, in the order they came; kept until somebody decides."""
        return self._tables.records.quarantined(entity, limit, after)

    def discard_quarantined(self, numbers: Sequence[int]) -> list[Outcome]:
        """Let go of quarantined rows for ever; an answer for each."""
        tables = self._change()
        return [quarantine.discard(tables, number) for number in numbers]

    def release_quarantined(self, numbers: Sequence[int], policies: Mapping[int, Policy], now: int) -> list[Outcome]:
        """Let quarantined rows fall due now: they are routed by today's rules, and return here if they fail again."""
        tables = self._change()
        return [quarantine.release(tables, number, policies, now) for number in numbers]

    def _change(self) -> Tables:
        self._connection.need_transaction()
        return self._tables

    def _token(self) -> bytes:
        return self._random(_TOKEN_BYTES)
