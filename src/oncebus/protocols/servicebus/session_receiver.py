"""A client's receiver that holds a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from oncebus.amqp.outgoing import OutgoingLink
from oncebus.amqp.types import Described, Symbol
from oncebus.broker.broker import Received
from oncebus.broker.dispatching import Dispatcher
from oncebus.engine.store import SessionLock, SessionLockLost
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest
from oncebus.protocols.servicebus.attached import LinkConnection
from oncebus.protocols.servicebus.errors import TIMEOUT, AmqpRefused
from oncebus.protocols.servicebus.limits import AmqpLimits
from oncebus.protocols.servicebus.messages import ticks
from oncebus.protocols.servicebus.nodes import Node
from oncebus.protocols.servicebus.receiver import Receiver
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError

SESSION_FILTER = "com.microsoft:session-filter"
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
WAIT = "com.microsoft:timeout"


def asks_for_session(link: OutgoingLink) -> bool:
    """Return whether the client asks for a session on this link."""
    source = link.attach.source
    return source is not None and source.filter is not None and SESSION_FILTER in source.filter


class SessionReceiver(Receiver):
    """Holds one session, named by the client or the next free one, until the link ends.

    The attach is answered once the session is locked. When the link ends, the session is released, and so are its
    unsettled messages. Some time after the session lock has expired, the link is detached.
    """

    operation = Operation.ACCEPT_SESSION
    is_sessionful = True

    def __init__(self, client: LinkConnection, link: OutgoingLink, node: Node) -> None:
        self._wanted_session, self._filter = _wanted_session(link)
        self._wait = _wait_of(link, client.front.limits)
        self._lock: SessionLock | None = None
        self._own_dispatcher: Dispatcher[Received] | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._is_over = False
        super().__init__(client, link, node)

    @property
    def lock(self) -> SessionLock | None:
        """See `Receiver`."""
        return self._lock

    def open(self) -> None:
        """See `Attached`. The answer waits for a session."""
        self.attach_consumer()
        self._accepting = self.front.tasks.start(self._accept())

    def check(self) -> None:
        """See `Attached`."""
        super().check()
        if self._lock is not None:
            if self._end_of(self._lock) <= self.front.broker.clock.steady():
                raise SessionLockLost(f"Session '{self._lock.session}' was held until {self._lock.locked_until}.")
            self.client.look_at(self, self._end_of(self._lock))

    def on_credit(self) -> None:
        """See `Attached`. Credit before the answer to the attach is ignored here; `_accept` applies it later."""
        if self._lock is not None:
            super().on_credit()

    def fail(self, error: Exception) -> None:
        """See `Waiter`. A link whose lock has expired gets no more messages, and stays until `check` ends it."""
        if self.link.drain or not isinstance(error, SessionLockLost):
            super().fail(error)

    def dispatcher(self) -> Dispatcher[Received]:
        """See `Receiver`."""
        assert self._own_dispatcher is not None
        return self._own_dispatcher

    def on_end(self) -> None:
        """See `Attached`."""
        self._is_over = True
        super().on_end()
        if self._accepting is not None:
            self._accepting.cancel()
        if self._lock is not None:
            self.front.tasks.start(self._release(self._lock))

    async def renew(self) -> SessionLock:
        """Renew the session lock and return it."""
        self._lock = await self.front.broker.renew_session(self._require_lock())
        self.client.look_at(self, self._end_of(self._lock))
        return self._lock

    def _end_of(self, lock: SessionLock) -> int:
        """Return the time at which the link ends unless the lock is renewed."""
        return lock.locked_until + round(self.front.limits.session_grace_seconds * SECOND)

    def _require_lock(self) -> SessionLock:
        assert self._lock is not None
        return self._lock

    async def _accept(self) -> None:
        try:
            lock = await self.front.broker.accept_session(self.node.address, self._wanted_session, self._wait)
            if lock is None:
                raise AmqpRefused(TIMEOUT, 408, f"No session of '{self.node.address.path}' became free in time.")
        except Exception as error:
            self._accepting = None
            self.client.end(self, error)
            return
        self._accepting = None
        if self._is_over:
            self.front.tasks.start(self._release(lock))
            return
        self._lock = lock
        self._own_dispatcher = self.front.broker.session_dispatcher(self.node.address, self.mode, self._require_lock)
        assert self.link.attach.source is not None
        self.link.accept(
            source=replace(self.link.attach.source, filter={Symbol(SESSION_FILTER): self._filter(lock.session)}),
            properties={LOCKED_UNTIL: ticks(lock.locked_until)},
        )
        self.is_accepted = True
        self.client.look_at(self, self._end_of(lock))
        self.client.flush()
        self.on_credit()

    async def _release(self, lock: SessionLock) -> None:
        """Release the session, after the client's last decisions are applied and unsent messages are released."""
        await self.wait_until_finished()
        try:
            await self.front.broker.release_session(lock)
        except OncebusError:
            # The lock expires anyway, or the entity has been deleted.
            return


def _wanted_session(link: OutgoingLink) -> tuple[str | None, Callable[[str], object]]:
    """Return the session that the client asks for, and a function that makes the answer's filter.

    Some clients send the filter as a described value, and accept only such an answer.
    """
    assert link.attach.source is not None
    assert link.attach.source.filter is not None
    value: Any = link.attach.source.filter[Symbol(SESSION_FILTER)]
    written: Callable[[str], object] = str
    if isinstance(value, Described):
        written = partial(Described, value.descriptor)
        value = value.value
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"The filter '{SESSION_FILTER}' has value {value!r:.100}. Not a string.")
    return value, written


def _wait_of(link: OutgoingLink, limits: AmqpLimits) -> float:
    value = link.properties.get(Symbol(WAIT))
    # `not value >= 0` also rejects NaN, unlike `value < 0`.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return limits.session_seconds
    return min(value / 1000, limits.longest_timeout_seconds)
