"""Sends the messages of a task: packs them into batches by size, and waits while the broker is away or busy."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from oncebus.connector.endpoints import Access
from oncebus.connector.errors import BadRow
from oncebus.connector.failures import failure, may_pass
from oncebus.connector.options import Entity
from oncebus.errors import OncebusError

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


class Placed(NamedTuple):
    """A message, and the row it comes from as error texts name it."""

    message: ServiceBusMessage
    place: str


class Batch(Protocol):
    """The part of the client's `ServiceBusMessageBatch` that packing uses."""

    def add_message(self, message: ServiceBusMessage) -> None:
        """Add a message. Raises `MessageSizeExceededError` if it does not fit."""

    def __len__(self) -> int: ...


def packed(messages: Iterator[Placed], new_batch: Callable[[], Batch]) -> Iterator[Batch | Placed]:
    """Yield the messages in order, in batches as large as the broker takes.

    A message that fits into no batch is yielded by itself: on a Premium namespace a single message may be larger.
    """
    batch = new_batch()
    for placed in messages:
        if _fits(batch, placed):
            continue
        if len(batch):
            yield batch
            batch = new_batch()
            if _fits(batch, placed):
                continue
        yield placed
    if len(batch):
        yield batch


def pauses(limit: float, chance: random.Random | None = None) -> Iterator[float]:
    """Yield growing pauses in seconds, with some chance so that tasks do not come back together, `limit` in total."""
    drawn, pause, left = chance or random.Random(), _FIRST_PAUSE, limit
    while left > 0:
        length = min(left, pause * drawn.uniform(0.5, 1.0))
        yield length
        left -= length
        pause = min(2 * pause, _LONGEST_PAUSE)


class Sending:
    """A sender that opens a new connection after a failure. Use it in a `with` block."""

    def __init__(self, access: Access, entity: Entity, retry_timeout: float) -> None:
        self._access, self._entity, self._retry_timeout = access, entity, retry_timeout
        self._client: ServiceBusClient | None = None
        self._sender: ServiceBusSender | None = None

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def send_all(self, messages: Iterator[Placed]) -> int:
        """Send all messages and return their number. Raises `ServiceBusFailure` or `BadRow`.

        A batch whose answer was lost is sent again. Its messages keep their ids, so the broker drops the second copies.
        """
        count = 0
        for each in packed(messages, self._new_batch):
            if isinstance(each, Placed):
                self._send_large(each)
                count += 1
            else:
                assert isinstance(each, ServiceBusMessageBatch)
                self._retrying(lambda sender, batch=each: sender.send_messages(batch))  # type: ignore[misc]
                count += len(each)
        return count

    def _new_batch(self) -> ServiceBusMessageBatch:
        made: list[ServiceBusMessageBatch] = []
        self._retrying(lambda sender: made.append(sender.create_message_batch()))
        return made[0]

    def _send_large(self, placed: Placed) -> None:
        try:
            self._retrying(lambda sender: sender.send_messages(placed.message))
        except MessageSizeExceededError as error:
            reason = " ".join(str(error).partition(" Error condition: ")[0].split())
            raise BadRow(
                f"The message of {placed.place} (message_id '{placed.message.message_id}') is too large for "
                f"{self._entity}: {reason}"
            ) from None

    def _retrying(self, call: Callable[[ServiceBusSender], object]) -> None:
        waits = pauses(self._retry_timeout)
        while True:
            try:
                call(self._opened())
                return
            except (MessageSizeExceededError, OncebusError):
                raise
            except Exception as error:
                self._close()
                pause = next(waits, None) if may_pass(error) else None
                if pause is None:
                    raise failure(error, f"Sending to {self._entity} at {self._access.host}") from None
                time.sleep(pause)

    def _opened(self) -> ServiceBusSender:
        if self._sender is None:
            self._client = self._access.client()
            make = self._client.get_topic_sender if self._entity.is_topic else self._client.get_queue_sender
            self._sender = make(self._entity.name)
        return self._sender

    def _close(self) -> None:
        sender, client = self._sender, self._client
        self._sender = self._client = None
        for each in (sender, client):
            if each is not None:
                each.close()


def _fits(batch: Batch, placed: Placed) -> bool:
    try:
        batch.add_message(placed.message)
    except MessageSizeExceededError:
        return False
    return True
