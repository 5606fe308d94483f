"""The scheduled messages: they fall due, or are cancelled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncebus.engine.store.sql.tables import Tables
from oncebus.engine.store.unsettled import discard, expire, is_expired, policy_of
from oncebus.engine.store.values import Outcome, Policy, Stage, SubQueue, Sweep


class ScheduledMessages:
    """Messages that wait for their scheduled time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def send_due(self, policies: Mapping[int, Policy], now: int, limit: int = 1000) -> Sweep:
        """Hand scheduled messages whose time has come to requeue, which enqueues them through the inbox.

        Until they have left, they are shown and counted as scheduled, but cannot be cancelled any more.
        """
        tables = self._tables.for_change()
        sweep = Sweep()
        copies = tables.messages.due(now, limit)
        for copy in copies:
            policy = policy_of(policies, copy.entity)
            if is_expired(copy, now):
                expire(tables, copy, policy)
            else:
                tables.leaving.send_back(copy, copy.expires)
        sweep.handled, sweep.more = len(copies), len(copies) == limit
        sweep.next = tables.messages.next_due(now)
        return sweep

    def cancel(self, entity: int, sequences: Sequence[int]) -> list[Outcome]:
        """Delete scheduled messages that have not fallen due. Return an outcome for each."""
        tables = self._tables.for_change()
        outcomes = []
        for sequence in sequences:
            copy = tables.messages.at(entity, SubQueue.MAIN, sequence)
            if copy is None or copy.stage != Stage.SCHEDULED:
                outcomes.append(Outcome.MESSAGE_NOT_FOUND)
            else:
                discard(tables, copy)
                outcomes.append(Outcome.DONE)
        return outcomes

    def check(self, entity: int, sequences: Sequence[int]) -> list[Outcome]:
        """Return the outcome that `cancel` would return for each message, without cancelling anything."""
        found = [self._tables.messages.at(entity, SubQueue.MAIN, sequence) for sequence in sequences]
        return [
            Outcome.DONE if copy is not None and copy.stage == Stage.SCHEDULED else Outcome.MESSAGE_NOT_FOUND
            for copy in found
        ]
