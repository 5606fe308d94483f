"""Sends the messages of a task: packs them into batches by size, and waits while the broker is away or busy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from oncebus.connector.attempts import retry
from oncebus.connector.endpoints import Access
from oncebus.connector.errors import BadRow, NotAllowed, TooLarge
from oncebus.connector.failures import may_pass
from oncebus.connector.options import Entity
from oncebus.values.errors import clip

T = TypeVar("T")
_LARGEST_BATCH = 1 << 20
"""What Service Bus accepts as a batch, in bytes, if it accepts larger messages."""
MOST_MESSAGES = 4500
"""How many messages Service Bus accepts in a batch."""


class Placed(NamedTuple):
    """A message, and the row it comes from as error texts name it."""

    message: ServiceBusMessage
    place: str


class Batch(Protocol):
    """The part of the client's `ServiceBusMessageBatch` that packing uses."""

    def add_message(self, message: ServiceBusMessage) -> None:
        """Add a message. Raises `MessageSizeExceededError` if it does not fit."""

    def __len__(self) -> int: ...


class Packed(NamedTuple):
    """Messages that are sent in one call. `batch` is None for a single one that fits into no batch."""

    messages: list[Placed]
    batch: Batch | None


def pack(messages: Iterable[Placed], new_batch: Callable[[], Batch]) -> Iterator[Packed]:
    """Yield the messages in order, in batches as large as the broker takes.

    A message that fits into no batch is yielded by itself: on a Premium namespace a single message may be larger.
    """
    # The first message makes the first batch: a partition without rows needs no connection.
    batch: Batch | None = None
    within: list[Placed] = []
    for placed in messages:
        if batch is None:
            batch = new_batch()
        if len(within) == MOST_MESSAGES or not _fits(batch, placed):
            if within:
                yield Packed(within, batch)
                batch, within = new_batch(), []
            if not _fits(batch, placed):
                yield Packed([placed], None)
                continue
        within.append(placed)
    if within:
        yield Packed(within, batch)


def runs(messages: Iterable[Placed]) -> Iterator[list[Placed]]:
    """Yield the messages in order, cut where the partition of a partitioned entity may change.

    Azure accepts a batch there only if all its messages have the same session or partition key. With duplicate
    detection, a message that has neither belongs to the partition of its id, so it is a run of its own.
    """
    for _, run in groupby(messages, lambda placed: _partition_of(placed.message)):
        yield list(run)


class Sending:
    """A sender that opens a new connection after a failure. Use it in a `with` block."""

    def __init__(self, access: Access, entity: Entity, retry_timeout: float) -> None:
        self._access, self._entity, self._retry_timeout = access, entity, retry_timeout
        self._client: ServiceBusClient | None = None
        self._sender: ServiceBusSender | None = None
        self._abandoned = 0
        self._changing = threading.Lock()
        self._splits = False
        self._where = str(entity)
        self._has_worked = False

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._sender, self._client)

    def send_all(self, messages: Iterable[Placed]) -> int:
        """Send all messages and return their number. Raises `ServiceBusFailure` or `BadRow`.

        A batch whose answer was lost is sent again. Its messages keep their ids, so the broker drops the second copies.
        """
        count = 0
        for each in pack(messages, self._new_batch):
            self._send(each)
            count += len(each.messages)
        return count

    def _new_batch(self) -> ServiceBusMessageBatch:
        def make(sender: ServiceBusSender) -> ServiceBusMessageBatch:
            batch = sender.create_message_batch()
            # On Premium, a single message may be much larger than a batch.
            most = min(batch.max_size_in_bytes, _LARGEST_BATCH)
            return batch if batch.max_size_in_bytes == most else sender.create_message_batch(most)

        return self._retrying(make)

    def _send(self, packed: Packed) -> None:
        """Send messages in one call, or in several if the entity wants those of different partitions apart."""
        if not self._splits:
            try:
                self._send_whole(packed)
                return
            except NotAllowed:
                if len(list(runs(packed.messages))) == 1:
                    raise
                self._splits = True
        for run in runs(packed.messages):
            for part in pack(run, self._new_batch):
                self._send_whole(part)

    def _send_whole(self, packed: Packed) -> None:
        if len(packed.messages) > 1:
            assert isinstance(packed.batch, ServiceBusMessageBatch)
            self._retrying(lambda sender, batch=packed.batch: sender.send_messages(batch))  # type: ignore[misc]
            return
        (placed,) = packed.messages
        try:
            self._retrying(lambda sender: sender.send_messages(placed.message))
        except TooLarge as error:
            raise BadRow(
                f"The message of {placed.place} (message_id {clip(placed.message.message_id)}) is too large. {error}"
            ) from None

    def _retrying(self, call: Callable[[ServiceBusSender], T]) -> T:
        value = retry(
            lambda: call(self._open()),
            lambda: f"Sending to {self._where}",
            self._retry_timeout,
            after_failure=self._abandon,
            passes=lambda error: may_pass(error, is_renewable=self._has_worked and self._access.may_change),
        )
        self._has_worked = True
        return value

    def _open(self) -> ServiceBusSender:
        with self._changing:
            abandoned, sender = self._abandoned, self._sender
        if sender is not None:
            return sender
        access = self._access.resolve(self._entity.name)
        self._where = f"{self._entity} at {access.host}"
        client = access.client()
        make = client.get_topic_sender if self._entity.is_topic else client.get_queue_sender
        # Without the client's thread that keeps an idle connection open: closing would wait for it for a second.
        sender = make(self._entity.name, keep_alive=0)
        with self._changing:
            if abandoned == self._abandoned:
                self._client, self._sender = client, sender
                return sender
        # This took too long, and the next attempt has a connection of its own.
        _close(sender, client)
        raise OperationTimeoutError(message="The attempt was abandoned.")

    def _abandon(self) -> None:
        """Forget the connection, so that the next attempt opens another one."""
        with self._changing:
            sender, client = self._sender, self._client
            self._sender = self._client = None
            self._abandoned += 1
        # Closing a broken connection may take as long as the attempt did.
        threading.Thread(target=_close, args=(sender, client), name="servicebus-closing", daemon=True).start()


def _close(*opened: ServiceBusSender | ServiceBusClient | None) -> None:
    for each in opened:
        if each is not None:
            with suppress(Exception):
                each.close()


def _fits(batch: Batch, placed: Placed) -> bool:
    try:
        batch.add_message(placed.message)
    except MessageSizeExceededError:
        return False
    except (TypeError, ValueError) as error:
        raise BadRow(f"The message of {placed.place} cannot be encoded: {clip(str(error))}") from None
    return True


def _partition_of(message: ServiceBusMessage) -> tuple[str, str | None]:
    key = message.session_id or message.partition_key
    return ("id", message.message_id) if key is None else ("key", key)
