"""Queues of receivers that compete for the messages of one entity.

A line makes one call to the broker for all its receivers. So an idle receiver costs only its place in the line, and an
arrival causes one query of the store. Messages are dealt to the receivers in turn, one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.engine.store import Action, Mode, SessionLock, Settlement
from oncebus.protocols.servicebus.errors import Refused, refusal_of
from oncebus.protocols.servicebus.limits import Limits
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

_TYPICAL_BYTES = 64 << 10


class InLine(Protocol):
    """A receiver that waits for messages."""

    @property
    def wanted(self) -> int:
        """Return how many messages the receiver wants now."""

    @property
    def can_take(self) -> bool:
        """Return whether the receiver can take one more message.

        It can take as many as `wanted`, unless its credit changed.
        """

    @property
    def is_there(self) -> bool:
        """Return whether the receiver's link is open."""

    def deliver(self, received: Received) -> None:
        """Take a message. An already deleted message must be taken while `is_there`, or it is lost."""

    def failed(self, error: Exception) -> None:
        """Handle an error of the line. The receiver has been removed from the line."""


class Portion:
    """Estimates how many messages to request at once so that they fit in memory, from the size of earlier ones.

    `bytes` is a hard limit on their total size, in case they are larger than estimated.
    """

    def __init__(self, limits: Limits, largest: int) -> None:
        self._limits = limits
        self.bytes = limits.bytes_at_once
        self._typical = max(_TYPICAL_BYTES, largest // 8)

    @property
    def most(self) -> int:
        """Return the maximum number of messages to request at once."""
        return max(1, min(self._limits.messages_at_once, self._limits.bytes_at_once // self._typical))

    def note(self, received: Sequence[Received]) -> None:
        """Update the estimate from received messages."""
        size = sum(len(each.body) + len(each.message.head) for each in received) // len(received)
        self._typical = max(size, (self._typical + size) // 2, 1)


class Line:
    """The receivers that wait for one entity's messages, in the order of their turns. `host` is passed to `refusal_of`.

    The line calls `closed` when no receiver is left.

    Each call of the broker requests as many messages as the receivers want at that moment. A call is never cancelled:
    messages that it has received and deleted could not be put back. A receiver that leaves during a call may still get
    the messages that were requested for it.
    """

    def __init__(
        self,
        broker: Broker,
        address: Address,
        mode: Mode,
        portion: Portion,
        host: str,
        *,
        session: Callable[[], SessionLock] | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._address = address
        self._mode = mode
        self._portion = portion
        self._host = host
        self._session = session
        self._closed = closed
        self._waiting: OrderedDict[InLine, None] = OrderedDict()
        self._requested: dict[InLine, int] = {}
        self._receiving: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, receiver: InLine) -> None:
        """Add a receiver, unless it already waits."""
        self._waiting.setdefault(receiver)
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    def leave(self, receiver: InLine) -> None:
        """Remove a receiver. It may still get messages until `looked` returns."""
        self._waiting.pop(receiver, None)
        if not self._waiting and self._task is not None and self._receiving is None:
            self._task.cancel()
            self._end()

    async def looked(self) -> None:
        """Wait for a running call of the broker, if any. After that, its messages are dealt or put back."""
        if self._receiving is not None:
            await asyncio.wait([self._receiving])

    async def _serve(self) -> None:
        task = asyncio.current_task()
        try:
            with self._broker.arrivals(self._address) as arrived:
                while wanted := self._wanted():
                    arrived.clear()
                    # All receivers may have left during the call.
                    if not await self._receive(wanted) and self._waiting:
                        await arrived.wait()
        except Exception as error:
            # Translate the error once for all receivers, because the translation may log it.
            refused = Refused(*refusal_of(error, self._host))
            waiting, self._waiting = self._waiting, OrderedDict()
            for receiver in waiting:
                receiver.failed(refused)
        finally:
            if self._task is task:
                self._end()

    async def _receive(self, wanted: int) -> bool:
        """Receive available messages and deal them. Return whether there were any."""
        receiving = self._receiving = asyncio.get_running_loop().create_future()
        try:
            session = None if self._session is None else self._session()
            received = await self._broker.receive(
                self._address, wanted, mode=self._mode, session=session, most_bytes=self._portion.bytes
            )
            if received:
                self._portion.note(received)
                left = self._deal(received)
                if left:
                    await put_back(self._broker, self._address, left)
        finally:
            self._receiving = None
            self._requested = {}
            receiving.set_result(None)
        return bool(received)

    def _wanted(self) -> int:
        """Return how many messages the receivers want together, up to the portion.

        A receiver that wants none is removed and has to join again.
        """
        total, most = 0, self._portion.most
        for receiver in list(self._waiting):
            wanted = min(receiver.wanted, most - total)
            total += wanted
            if wanted:
                self._requested[receiver] = wanted
            else:
                del self._waiting[receiver]
            if total >= most:
                break
        return total

    def _deal(self, received: Sequence[Received]) -> list[Received]:
        """Deal messages to the receivers. Return those that no receiver can take."""
        left, requested = list(reversed(received)), self._requested
        while left and self._waiting:
            receiver, _ = self._waiting.popitem(last=False)
            if receiver.can_take:
                receiver.deliver(left.pop())
                self._waiting[receiver] = None
                if receiver in requested:
                    requested[receiver] -= 1
        if left:
            # Some receivers have left, or take fewer than they wanted.
            for receiver, count in requested.items():
                while left and count > 0 and (receiver.can_take if left[-1].message.token else receiver.is_there):
                    receiver.deliver(left.pop())
                    count -= 1
        return left

    def _end(self) -> None:
        self._task = None
        if not self._waiting:
            self._closed()


class Lines:
    """The lines of all entities that receivers wait for, across all connections."""

    def __init__(self, broker: Broker, limits: Limits, host: str) -> None:
        self._broker = broker
        self._limits = limits
        self._host = host
        self._lines: dict[tuple[int, int, Mode], Line] = {}

    def join(self, entity: int, address: Address, mode: Mode, receiver: InLine) -> Line:
        """Add a receiver to the line of an entity. Return the line, so that the receiver can leave it."""
        key = (entity, int(address.sub_queue), mode)
        line = self._lines.get(key)
        if line is None:

            def closed() -> None:
                del self._lines[key]

            line = Line(self._broker, address, mode, self.portion(entity), self._host, closed=closed)
            self._lines[key] = line
        line.join(receiver)
        return line

    def of_session(self, address: Address, mode: Mode, session: Callable[[], SessionLock]) -> Line:
        """Return a separate line for the one receiver that holds a session."""
        return Line(self._broker, address, mode, self.portion(session().entity), self._host, session=session)

    def portion(self, entity: int) -> Portion:
        """Return a new estimate for receiving from an entity."""
        catalogue = self._broker.catalogue
        return Portion(self._limits, catalogue.largest_message(catalogue.entity(entity)))


async def put_back(broker: Broker, address: Address, messages: Sequence[Received]) -> None:
    """Release messages that no client has seen, without counting a delivery attempt."""
    tokens = [each.message.token for each in messages if each.message.token is not None]
    if len(tokens) < len(messages):
        lost = len(messages) - len(tokens)
        log.warning("%d messages were received and deleted from '%s' after their receiver left", lost, address.path)
    await release(broker, address, tokens)


async def release(broker: Broker, address: Address, tokens: Sequence[bytes]) -> None:
    """Release the messages with these lock tokens, without counting a delivery attempt.

    Errors are only logged, because the locks expire anyway.
    """
    if not tokens:
        return
    try:
        await broker.settle(address, [Settlement(Action.RELEASE, token) for token in tokens])
    except OncebusError as error:
        log.info("%d messages could not be released and stay locked until their locks expire: %s", len(tokens), error)
