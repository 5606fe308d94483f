"""Receives messages over several links at the same time, keeps their locks, and completes them.

An event loop in a thread of its own runs the official client, because only its asyncio form can settle many messages at
once: one after the other, each settlement costs a round trip to the broker.

A delivery can be settled only over the link it came by. So when a link fails, it is given up, and its messages count as
lost: their locks expire, and the broker delivers them again. The client's own retries are off, because they would
replace a link without telling.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    OperationTimeoutError,
    SessionLockLostError,
)

from oncebus.connector.attempts import in_thread
from oncebus.connector.failures import failure, log_retry, may_pass
from oncebus.connector.options import StreamOptions
from oncebus.connector.schema import size_of
from oncebus.connector.spool import Identity
from oncebus.values.errors import OncebusError

T = TypeVar("T")
_TOGETHER = 200
"""How many settlements or renewals of a link are under way at the same time."""
_MOST_AT_ONCE = 1000
_FIRST_SHARE = 16
_FURTHER_WAIT = 0.2
_LONGEST_RECEIVE = 3.0
_SESSION_WAIT = 2.0
"""How long to wait for a session, at least. The time that a link takes to open counts."""
_STUCK = 60.0
"""After this time, in seconds, an answer of the broker does not come any more."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOST = (MessageAlreadySettled, MessageLockLostError, MessageNotFoundError, SessionLockLostError)


class Delivery(NamedTuple):
    """A received message."""

    identity: Identity
    message: ServiceBusReceivedMessage
    size: int


class Received(NamedTuple):
    """The result of receiving. `is_sure` is false if the broker could not be asked, so there may be more."""

    deliveries: list[Delivery]
    is_sure: bool


@dataclass(slots=True)
class _Held:
    message: ServiceBusReceivedMessage
    due: float
    """When to renew its lock, in seconds since 1970."""


@dataclass(eq=False, slots=True)
class _Link:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    client: ServiceBusClient | None = None
    receiver: ServiceBusReceiver | None = None
    held: dict[Identity, _Held] = field(default_factory=dict)
    session_due: float | None = None
    failing_since: float | None = None
    pause: float = 0.0


class Receivers:
    """Receives from one entity. All methods are for one thread."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._where = str(options.entity)
        self._has_worked = False
        self._links = [_Link() for _ in range(options.receivers)]
        self._average = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servicebus-receivers", daemon=True)
        self._thread.start()
        self._renewing = None if options.deletes else self._start(self._renew_for_ever())

    def receive(self, rows: int, size: int) -> Received:
        """Receive up to `rows` messages, and stop soon after `size` bytes. Raises `ServiceBusFailure`.

        Waits for the first message for at most the option `wait`. While the broker is away it returns nothing, until
        the option `retry_timeout` has passed.
        """
        return self._start(self._receive(rows, size)).result()

    def complete(self, identities: Iterable[Identity]) -> Future[list[Identity]]:
        """Complete messages whose locks are held, and return those that the broker has confirmed."""
        return self._start(self._complete(set(identities)))

    def holds(self, identity: Identity) -> bool:
        """Return whether the lock of a message is held, as far as is known."""
        return self._options.deletes or any(identity in link.held for link in self._links)

    def close(self) -> None:
        """Close all links. Messages that are not completed stay locked until their locks expire."""
        if self._renewing is not None:
            self._renewing.cancel()
        self._start(self._close_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # Receiving

    async def _receive(self, rows: int, size: int) -> Received:
        found: list[Delivery] = []
        links, wait, total, is_sure = self._links, self._options.wait, 0, True
        deadline = time.monotonic() + _LONGEST_RECEIVE
        while links and len(found) < rows and total < size and (not found or time.monotonic() < deadline):
            share = self._share(rows - len(found), size - total, len(links))
            pulls = await asyncio.gather(*(self._pull(link, share, wait) for link in links), return_exceptions=True)
            failures = [pull for pull in pulls if isinstance(pull, BaseException)]
            answers = [None if isinstance(pull, BaseException) else pull for pull in pulls]
            got = [delivery for answer in answers for delivery in answer or ()]
            if failures and not found and not got:
                raise failures[0]
            # If a link has failed and others have messages, these come first. A link that is still failing raises then.
            is_sure &= all(answer is not None for answer in answers)
            links = [link for link, answer in zip(links, answers, strict=True) if answer and len(answer) == share]
            found += got
            total += sum(delivery.size for delivery in got)
            wait = _FURTHER_WAIT
        if found:
            self._average = total / len(found)
        elif not is_sure:
            await asyncio.sleep(self._options.wait)
        return Received(found, is_sure)

    def _share(self, rows: int, size: int, links: int) -> int:
        """Return how many messages each link asks for. Few while nobody knows how large they are."""
        by_size = size / self._average if self._average else _FIRST_SHARE
        return max(1, min(_MOST_AT_ONCE, int(min(rows, by_size) / links)))

    async def _pull(self, link: _Link, most: int, wait: float) -> list[Delivery] | None:
        """Receive over one link. Return None if the broker could not be asked."""
        async with link.lock:
            if link.failing_since is not None and time.monotonic() < link.failing_since + link.pause:
                return None
            try:
                async with asyncio.timeout(wait + _STUCK):
                    receiver = await self._open(link)
                    messages = await receiver.receive_messages(max_message_count=most, max_wait_time=wait)
            except SessionLockLostError:
                # The driver was stuck for longer than the lock. The session can be taken again.
                await self._give_up(link, None)
                return None
            except Exception as error:
                no_session = self._options.sessions and isinstance(error, OperationTimeoutError)
                await self._give_up(link, None if no_session else error)
                return [] if no_session else None
            link.failing_since, link.pause = None, 0.0
            self._has_worked = True
            deliveries = [_delivery(message) for message in messages]
            if not self._options.deletes:
                for delivery in deliveries:
                    link.held[delivery.identity] = _Held(delivery.message, _half_way(delivery.message.locked_until_utc))
            if self._options.sessions and not link.held:
                await self._give_up(link, None)
            return deliveries

    async def _open(self, link: _Link) -> ServiceBusReceiver:
        if link.receiver is None:
            options, entity = self._options, self._options.entity
            # Reading a file may hang, and this thread serves all links.
            access = await asyncio.wrap_future(in_thread(lambda: options.access.resolve(entity.name)))
            self._where = f"{entity} at {access.host}"
            link.client = access.async_client()
            deletes = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            arguments: dict[str, Any] = {
                "receive_mode": deletes if options.deletes else ServiceBusReceiveMode.PEEK_LOCK,
            }
            if options.sessions:
                patience = max(options.wait, _SESSION_WAIT)
                # A link leaves its session after each micro-batch. Closing would wait for the client's task that keeps
                # an idle connection open, for up to a second.
                arguments |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": patience, "keep_alive": 0}
            receiver: ServiceBusReceiver = entity.receiver(link.client, **arguments)
            link.receiver = receiver
            # Opened here, because receiving would count the time that it takes as part of its wait.
            await receiver.__aenter__()
        return link.receiver

    async def _give_up(self, link: _Link, error: Exception | None) -> None:
        """Close a link and forget its messages. Raises `ServiceBusFailure` if waiting does not help.

        There is no error if the link is no longer needed, or if something else than receiving failed: if that lasts,
        receiving will fail too.
        """
        client, receiver = link.client, link.receiver
        link.client = link.receiver = None
        link.session_due = None
        link.held.clear()
        for each in (receiver, client):
            if each is not None:
                with suppress(Exception):
                    async with asyncio.timeout(5):
                        await each.close()
        if error is None:
            return
        now, retry_timeout, doing = time.monotonic(), self._options.retry_timeout, f"Receiving from {self._where}"
        passes = may_pass(error, is_renewable=self._has_worked and self._options.access.may_change)
        if link.failing_since is None:
            link.failing_since = now
            if passes:
                log_retry(error, doing, retry_timeout)
        # Ask again soon at first: most connections that break can be opened again at once.
        link.pause = now - link.failing_since + min(5.0, 0.1 + (now - link.failing_since) / 4)
        if not passes or now - link.failing_since > retry_timeout:
            if isinstance(error, OncebusError):
                raise error
            raise failure(error, doing) from None

    # Settling

    async def _complete(self, identities: set[Identity]) -> list[Identity]:
        answers = await asyncio.gather(*(self._complete_on(link, identities) for link in self._links))
        return [identity for answer in answers for identity in answer]

    async def _complete_on(self, link: _Link, identities: set[Identity]) -> list[Identity]:
        confirmed: list[Identity] = []
        async with link.lock:
            mine = [identity for identity in link.held if identity in identities]
            for at in range(0, len(mine), _TOGETHER):
                some, receiver = mine[at : at + _TOGETHER], link.receiver
                if receiver is None:
                    break
                calls = (receiver.complete_message(link.held[identity].message) for identity in some)
                answers = await _all(calls)
                is_broken = False
                for identity, answer in zip(some, answers, strict=True):
                    if answer is None:
                        confirmed.append(identity)
                    elif not isinstance(answer, _LOST):
                        is_broken = True
                    link.held.pop(identity, None)
                if is_broken:
                    await self._give_up(link, None)
            if self._options.sessions and not link.held and link.receiver is not None:
                # Let go of the session, so that the link can take another one.
                await self._give_up(link, None)
        return confirmed

    # Keeping locks

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for link in self._links:
                if link.held:
                    async with link.lock:
                        await self._renew(link)

    async def _renew(self, link: _Link) -> None:
        receiver = link.receiver
        if receiver is None:
            return
        now = time.time()
        if self._options.sessions:
            if link.session_due is None:
                link.session_due = _half_way(receiver.session.locked_until_utc)
            if now >= link.session_due:
                (answer,) = await _all([receiver.session.renew_lock()])
                link.session_due = None
                if isinstance(answer, BaseException):
                    await self._give_up(link, None)
            return
        due = [identity for identity, held in link.held.items() if now >= held.due]
        for at in range(0, len(due), _TOGETHER):
            some = due[at : at + _TOGETHER]
            answers = await _all(receiver.renew_message_lock(link.held[identity].message) for identity in some)
            for identity, answer in zip(some, answers, strict=True):
                if isinstance(answer, _LOST):
                    del link.held[identity]
                elif isinstance(answer, BaseException):
                    await self._give_up(link, None)
                    return
                else:
                    link.held[identity].due = _half_way(answer)

    async def _close_all(self) -> None:
        for link in self._links:
            async with link.lock:
                await self._give_up(link, None)


def _delivery(message: ServiceBusReceivedMessage) -> Delivery:
    enqueued = message.enqueued_time_utc
    sequence = message.sequence_number
    assert enqueued is not None, "a received message has an enqueued time"
    assert sequence is not None, "a received message has a sequence number"
    identity = Identity(sequence, (enqueued.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1))
    return Delivery(identity, message, size_of(message))


def _half_way(until: datetime | None) -> float:
    """Return the middle between now and the end of a lock, in seconds since 1970."""
    now = time.time()
    return now if until is None else now + max(1.0, (until.replace(tzinfo=UTC).timestamp() - now) / 2)


async def _all(calls: Iterable[Coroutine[Any, Any, object]]) -> list[Any]:
    """Await calls together. Return None or the result of each, or its exception."""

    async def call_in_time(call: Coroutine[Any, Any, object]) -> object:
        async with asyncio.timeout(_STUCK):
            return await call

    return list(await asyncio.gather(*(call_in_time(call) for call in calls), return_exceptions=True))
