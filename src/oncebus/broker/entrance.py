"""The entrance to the inbox: everything that gets a place in the order comes through `Entrance.enter`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from oncebus.broker.acceptor import Acceptor, Answer, Appending, resolve
from oncebus.broker.accounting import Accounting
from oncebus.broker.bodies import Bodies
from oncebus.broker.catalogues import Catalogues
from oncebus.broker.clock import Clock
from oncebus.broker.latencies import Latency
from oncebus.broker.sending import Admitted, Incoming, SequenceNumbers, forget_of, number_of, row_of
from oncebus.engine.engine import Log
from oncebus.engine.inbox import Row
from oncebus.model.entities import Queue, Topic
from oncebus.model.messages import NOBODY
from oncebus.values.threads import OwnThread


class Entrance:
    """Stamps, numbers, charges and appends messages, in the order of the calls. `latency` observes commits."""

    def __init__(
        self,
        inbox: Log,
        thread: OwnThread,
        latency: Latency,
        numbers: SequenceNumbers,
        clock: Clock,
        catalogues: Catalogues,
        accounting: Accounting,
        bodies: Bodies,
    ) -> None:
        self.acceptor = Acceptor(inbox, thread, self._account, latency, clock.passed)
        self.numbers = numbers
        self._clock = clock
        self._catalogues = catalogues
        self._accounting = accounting
        self._bodies = bodies
        self._turn = 0

    def enter(self, admitted: Sequence[Admitted], answer: Answer, callers: int = 1) -> list[Row]:
        """Append messages to the inbox, in one commit, on behalf of several callers. Return their rows.

        With no messages, it sends a pulse. See `Acceptor.append` for `answer`. Raises `ClockLeapt` or `BrokerClosed`.
        This is no coroutine, so nothing can come between the stamp and the append: the rows of the inbox are in the
        order of their times and numbers. A pulse has no place in the order, so it needs no stamp.
        """
        rows = self._stamp(admitted) if admitted else [_pulse_at(self._clock.last)]
        charges = self._accounting.charge(rows)
        weight, version = self._accounting.weigh(charges), self._catalogues.current.version
        self.acceptor.append(rows, charges, weight, version, answer, callers)
        self._accounting.add(charges)
        return rows

    def submit(self, admitted: Sequence[Admitted]) -> tuple[list[Row], asyncio.Future[int]]:
        """Enter messages. The future resolves to their commit, or raises why they were refused.

        Cancelling it does not take the rows back.
        """
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return self.enter(admitted, partial(resolve, durable)), durable

    def pulse(self) -> asyncio.Future[int]:
        """Send a pulse through the pipeline. The future resolves to its commit."""
        return self.submit(())[1]

    def number(self, entity: Queue | Topic, message: Incoming) -> int:
        """Give a message that has an id its sequence number in advance. See `Admitted`."""
        self._turn += 1
        return number_of(entity, message, self.numbers, self._turn)

    def _stamp(self, admitted: Sequence[Admitted]) -> list[Row]:
        now, rows = self._clock.stamp(), []
        for each in admitted:
            if each.least > now:
                now = self._clock.stamp(each.least)
            self._turn += 1
            turn = self._turn if each.origin is None else each.origin.sequence
            rows.append((forget_of if each.is_forget else row_of)(each, self.numbers, now, turn))
        return rows

    def _account(self, group: Sequence[Appending], commit: int | None) -> None:
        """Account for rows that became durable with `commit`, or were refused if it is None."""
        if commit is not None:
            self._accounting.commit(commit, group, self.acceptor.last_bytes)
            return
        for each in group:
            self._accounting.remove(each.charges)
            self._bodies.refused(_own_bodies(each.rows))


def _pulse_at(time: int) -> Row:
    return Row(entity=NOBODY, sequence=0, time=time, window=0, message_id="", hops=0, size=0, head=b"", body=b"")


def _own_bodies(rows: Sequence[Row]) -> list[str]:
    """Return the body files that were written for these rows. Those of rows with an origin belong to the store."""
    named = [row.get("body_file") for row in rows if row.get("origin_entity") is None]
    return [name for name in named if name is not None]
