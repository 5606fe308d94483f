"""The official Python client without its own retries: each call is one attempt, and reports what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
)

from .entities import DEAD_LETTERS, SINKS, uid_of, wire_form
from .history import Refused, Unanswered
from .operations import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RENEW, Message

T = TypeVar("T")
_PATIENCE = 20.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A lost lock is not among them: after a connection breaks, the client settles again over another one, and gets that
# error if its first attempt succeeded. Nor is a deleted entity: its link may end before the answer to a request on it.
_REFUSALS = (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
)


class AmqpClient:
    """A client. Senders stay open until something fails, receivers for one receive."""

    def __init__(self, connection_string: str) -> None:
        self.string = connection_string
        self._client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
        self._senders: dict[str, ServiceBusSender] = {}

    def close(self) -> None:
        with suppress(Exception):
            self._client.close()

    def send(self, entity: str, messages: Sequence[Message]) -> list[int] | None:
        """Send messages in one transfer, or schedule a single one and return its number."""
        now = datetime.now(UTC)

        def due(message: Message) -> datetime | None:
            return None if message.due is None else now + timedelta(seconds=message.due)

        whole = [
            ServiceBusMessage(
                body, message_id=name, session_id=message.session, application_properties=dict(own.items())
            )
            for message in messages
            for body, name, own in [wire_form(SINKS[entity], message.uid, message.id, message.colour)]
        ]

        def attempt() -> list[int] | None:
            sender = self._sender(entity)
            at = due(messages[0])
            if len(whole) == 1 and at is not None:
                return sender.schedule_messages(whole[0], at, timeout=_PATIENCE)
            for message, made in zip(messages, whole, strict=True):
                made.scheduled_enqueue_time_utc = due(message)
            sender.send_messages(whole if len(whole) > 1 else whole[0], timeout=_PATIENCE)
            return None

        try:
            return _known(attempt)
        except (Refused, Unanswered):
            self._drop_sender(entity)
            raise

    def cancel(self, entity: str, number: int) -> None:
        try:
            _known(lambda: self._sender(entity).cancel_scheduled_messages(number, timeout=_PATIENCE))
        except Unanswered:
            self._drop_sender(entity)
            raise

    @contextmanager
    def receiving(self, place: str, session: str | None) -> Iterator[Link]:
        """Yield a receiver. Its link opens with its first operation."""
        link = Link(self._client, place, session)
        try:
            yield link
        finally:
            link.close()

    def _sender(self, entity: str) -> ServiceBusSender:
        if entity not in self._senders:
            self._senders[entity] = self._client.get_queue_sender(entity)
        return self._senders[entity]

    def _drop_sender(self, entity: str) -> None:
        with suppress(Exception):
            self._senders.pop(entity).close()


class Link:
    """A receiver for one place."""

    def __init__(self, client: ServiceBusClient, place: str, session: str | None) -> None:
        path = place.removesuffix(DEAD_LETTERS)
        options: dict[str, Any] = {"session_id": session} if session is not None else {}
        if path != place:
            options["sub_queue"] = ServiceBusSubQueue.DEAD_LETTER
        topic, is_subscription, name = path.partition("/Subscriptions/")
        if is_subscription:
            self._receiver: ServiceBusReceiver = client.get_subscription_receiver(topic, name, **options)
        else:
            self._receiver = client.get_queue_receiver(path, **options)

    def close(self) -> None:
        with suppress(Exception):
            self._receiver.close()

    def receive(self, most: int, seconds: float) -> list[ServiceBusReceivedMessage]:
        """Return the messages that arrive within this many seconds. Connecting comes first and does not count."""

        def attempt() -> list[ServiceBusReceivedMessage]:
            self._receiver.__enter__()
            return self._receiver.receive_messages(most, max_wait_time=seconds)

        return _known(attempt)

    def receive_deferred(self, number: int) -> list[ServiceBusReceivedMessage]:
        return _known(lambda: self._receiver.receive_deferred_messages(number, timeout=_PATIENCE))

    def settle(self, message: ServiceBusReceivedMessage, action: str) -> None:
        receiver = self._receiver
        doing: dict[str, Callable[[], object]] = {
            COMPLETE: lambda: receiver.complete_message(message),
            ABANDON: lambda: receiver.abandon_message(message),
            DEFER: lambda: receiver.defer_message(message),
            DEAD_LETTER: lambda: receiver.dead_letter_message(message, reason="history"),
            # With sessions, the lock is on the session.
            RENEW: lambda: (
                receiver.renew_message_lock(message, timeout=_PATIENCE)
                if receiver.session is None
                else receiver.session.renew_lock(timeout=_PATIENCE)
            ),
        }
        _known(doing[action])


def recorded(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Return the record of a received message for a history."""
    enqueued = message.enqueued_time_utc
    return {
        "uid": uid_of(b"".join(message.body).decode(), message.message_id or ""),
        "id": message.message_id,
        "number": message.sequence_number,
        "origin": message.enqueued_sequence_number,
        "count": message.delivery_count,
        "session": message.session_id,
        "enqueued": None if enqueued is None else (enqueued - _EPOCH) // timedelta(microseconds=1),
    }


def _known(attempt: Callable[[], T]) -> T:
    """Make one attempt. The client raises many kinds of errors when a connection breaks; their outcome is unknown."""
    try:
        return attempt()
    except _REFUSALS as error:
        raise Refused(repr(error)) from error
    except Exception as error:
        raise Unanswered(repr(error)) from error
