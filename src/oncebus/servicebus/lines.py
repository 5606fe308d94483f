"""Receivers that compete for the messages of one place stand in line.

However many they are, one call of the broker waits there for all of them, so an idle receiver costs nothing but its
place in the line, and an arrival one look into the store. Messages are dealt out one by one in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.errors import OncebusError
from oncebus.servicebus.errors import Refused, refusal_of
from oncebus.servicebus.limits import Limits
from oncebus.store import Action, Mode, SessionLock, Settlement

log = logging.getLogger(__name__)

_TYPICAL_BYTES = 64 << 10


class InLine(Protocol):
    """One that waits for messages."""

    @property
    def wanted(self) -> int:
        """How many are to be asked for, for it."""

    @property
    def can_take(self) -> bool:
        """Whether it can be given one more. It can be given what was asked for, unless it has changed its mind."""

    @property
    def is_there(self) -> bool:
        """Whether it can be reached at all."""

    def deliver(self, received: Received) -> None:
        """Take a message. One that is deleted already is taken as long as it is there: nobody else can have it."""

    def failed(self, error: Exception) -> None:
        """There will be none. It is in the line no more."""


class Portion:
    """How many messages to ask for at once, so that what comes fits into memory: by the size of those before.

    `bytes` is what they may be together, should they be larger.
    """

    def __init__(self, limits: Limits, largest: int) -> None:
        self._limits = limits
        self.bytes = limits.bytes_at_once
        self._typical = max(_TYPICAL_BYTES, largest // 8)

    @property
    def most(self) -> int:
        """So many at most."""
        return max(1, min(self._limits.messages_at_once, self._limits.bytes_at_once // self._typical))

    def note(self, received: Sequence[Received]) -> None:
        """What came."""
        size = sum(len(each.body) + len(each.message.head) for each in received) // len(received)
        self._typical = max(size, (self._typical + size) // 2, 1)


class Line:
    """Those that wait at a place, in the order of their turns. `closed` is called when nobody is left.

    How many to ask for is counted at each look, and a look is never given up: what was received and deleted by then
    could not be put back. Who leaves while a look is under way may still be given what was asked for it.
    """

    def __init__(
        self,
        broker: Broker,
        address: Address,
        mode: Mode,
        portion: Portion,
        *,
        session: Callable[[], SessionLock] | None = None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._address = address
        self._mode = mode
        self._portion = portion
        self._session = session
        self._closed = closed
        self._waiting: OrderedDict[InLine, None] = OrderedDict()
        self._asked: dict[InLine, int] = {}
        self._looking: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, receiver: InLine) -> None:
        """Wait for messages, if it does not yet."""
        self._waiting.setdefault(receiver)
        if self._task is None:
            self._task = asyncio.create_task(self._serve())

    def leave(self, receiver: InLine) -> None:
        """Wait no more. Messages may still come: see `looked`."""
        self._waiting.pop(receiver, None)
        if not self._waiting and self._task is not None and self._looking is None:
            self._task.cancel()
            self._end()

    async def looked(self) -> None:
        """Wait for the look that is under way, if one is: what it finds has been dealt out then, or put back."""
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def _serve(self) -> None:
        task = asyncio.current_task()
        try:
            with self._broker.arrivals(self._address) as arrived:
                while wanted := self._wanted():
                    arrived.clear()
                    if not await self._look(wanted):
                        await arrived.wait()
        except Exception as error:
            # Understood once for all of them: some of it is logged.
            told = Refused(*refusal_of(error))
            waiting, self._waiting = self._waiting, OrderedDict()
            for receiver in waiting:
                receiver.failed(told)
        finally:
            if self._task is task:
                self._end()

    async def _look(self, wanted: int) -> bool:
        """Hand out what is there; whether there was something."""
        looking = self._looking = asyncio.get_running_loop().create_future()
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
            self._looking = None
            self._asked = {}
            looking.set_result(None)
        return bool(received)

    def _wanted(self) -> int:
        """How many all of them want, or as many as are enough. Who wants none has to join again."""
        total, most = 0, self._portion.most
        for receiver in list(self._waiting):
            wanted = min(receiver.wanted, most - total)
            total += wanted
            if wanted:
                self._asked[receiver] = wanted
            else:
                del self._waiting[receiver]
            if total >= most:
                break
        return total

    def _deal(self, received: Sequence[Received]) -> list[Received]:
        """Hand out messages; what is left, for want of receivers."""
        left, asked = list(reversed(received)), self._asked
        while left and self._waiting:
            receiver, _ = self._waiting.popitem(last=False)
            if receiver.can_take:
                receiver.deliver(left.pop())
                self._waiting[receiver] = None
                if receiver in asked:
                    asked[receiver] -= 1
        if left:
            # Some have left, or take fewer than were asked for them.
            for receiver, count in asked.items():
                while left and count > 0 and (receiver.can_take if left[-1].message.token else receiver.is_there):
                    receiver.deliver(left.pop())
                    count -= 1
        return left

    def _end(self) -> None:
        self._task = None
        if not self._waiting:
            self._closed()


class Lines:
    """The lines of all places where receivers wait, of all connections."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits
        self._lines: dict[tuple[int, int, Mode], Line] = {}

    def join(self, entity: int, address: Address, mode: Mode, receiver: InLine) -> Line:
        """Stand in the line for the messages of an entity; the line, to leave it."""
        key = (entity, int(address.sub_queue), mode)
        line = self._lines.get(key)
        if line is None:

            def closed() -> None:
                del self._lines[key]

            line = Line(self._broker, address, mode, self.portion(entity), closed=closed)
            self._lines[key] = line
        line.join(receiver)
        return line

    def of_session(self, address: Address, mode: Mode, session: Callable[[], SessionLock]) -> Line:
        """A line of its own for the one receiver that holds a session."""
        return Line(self._broker, address, mode, self.portion(session().entity), session=session)

    def portion(self, entity: int) -> Portion:
        """For who receives from an entity."""
        catalogue = self._broker.catalogue
        return Portion(self._limits, catalogue.largest_message(catalogue.entity(entity)))


async def put_back(broker: Broker, address: Address, messages: Sequence[Received]) -> None:
    """Let go of messages that nobody has seen; the attempt does not count."""
    tokens = [each.message.token for each in messages if each.message.token is not None]
    if len(tokens) < len(messages):
        number = len(messages) - len(tokens)
        log.warning("%d messages received and deleted from '%s' came too late", number, address.path)
    await release(broker, address, tokens)


async def release(broker: Broker, address: Address, tokens: Sequence[bytes]) -> None:
    """Let go of the messages with these lock tokens; the attempt does not count."""
    if not tokens:
        return
    try:
        await broker.settle(address, [Settlement(Action.RELEASE, token) for token in tokens])
    except OncebusError as error:
        # Their locks run out.
        log.info("%d messages could not be put back: %s", len(tokens), error)
