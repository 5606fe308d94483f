"""Incoming messages: checked against their entity and turned into rows of the inbox."""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncebus import amqp
from oncebus.amqp.types import DecodeError, EncodeError
from oncebus.engine.inbox import Row
from oncebus.model.entities import (
    NO_LIMIT,
    BadRequest,
    InvalidOperation,
    Namespace,
    Queue,
    QuotaExceeded,
    Topic,
    check_id,
    check_message,
    check_partition_key,
    effective_partition_key,
    partition_of,
)
from oncebus.model.entities.detection_keys import BODY, CountedId, counted_id, property_of
from oncebus.model.entities.limits import largest_message
from oncebus.model.messages import LARGEST_INLINE_BODY, PARTITION_SHIFT, key_of, key_of_kind
from oncebus.values.durations import LAST_MOMENT
from oncebus.values.errors import ErrorKind

_KILOBYTE = 1024
LARGEST_BATCH = _KILOBYTE * _KILOBYTE
"""The maximum total size of several messages, even where a single one may be larger."""
MOST_MESSAGES = 4500
"""The maximum number of messages in a batch."""
# The properties that tell receivers why a message is a dead letter.
DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"
_ENVELOPE = 256 * _KILOBYTE
"""Room for encoded bytes that do not count towards a message's size: headers, annotations, envelopes of a batch."""


class MessageTooLarge(BadRequest):
    """The message is larger than its entity allows."""

    kind = ErrorKind.TOO_LARGE


class Incoming(NamedTuple):
    """A message as a protocol has decoded it.

    `head` and `body` are the bare message, byte for byte as the sender sent it.

    `message_id` is text, or the bytes of a binary id; None if the sender gave none. `ttl` is in microseconds.
    `body_in_file` is the length of a body that already has a body file; `body` is empty then. `body_id` is the id of
    the body if somebody has computed it already, as for a body in a file.
    """

    head: bytes
    body: bytes
    message_id: str | bytes | None = None
    session: str | None = None
    partition_key: str | None = None
    scheduled: int | None = None
    ttl: int | None = None
    body_in_file: int = 0
    body_id: CountedId | None = None

    @property
    def size(self) -> int:
        """Return how many bytes the message counts towards the entity's quota."""
        return len(self.head) + len(self.body) + self.body_in_file


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a requeued message comes from.

    `partition` and `scheduled` are set for a message that comes back to its own entity: it keeps both.
    """

    entity: int
    sequence: int
    hops: int = 0
    expires: int | None = None
    partition: int | None = None
    scheduled: int | None = None


class Admitted(NamedTuple):
    """A message with an id that has passed all checks and may enter the inbox.

    `is_checked` says whether detection looks up and remembers its id, `is_forget` whether it only forgets that. If
    `sequence` is given, the message was numbered in advance: the row is scheduled for the message's own time, or for
    the next moment if that has passed, and gets another number then. `least` is the earliest stamp: see `Clock.stamp`.
    """

    entity: Queue | Topic
    message: Incoming
    is_checked: bool
    body_file: str | None = None
    sequence: int | None = None
    origin: Origin | None = None
    least: int = 0
    is_forget: bool = False


def admit(entity: Queue | Topic, message: Incoming, body_file: str | None, has_own_id: bool) -> Admitted:
    """Return an admitted message. Under a detection key, it counts even if its sender gave it no MessageId."""
    return Admitted(entity, message, has_own_id or entity.detection_key is not None, body_file)


def admit_all(entity: Queue | Topic, messages: Sequence[Incoming], names: Iterable[str] = ()) -> list[Admitted]:
    """Return admitted messages. `names` has the body files of the large ones, in the same order."""
    files, admitted = iter(names), []
    for each in messages:
        message, has_own_id = (each, True) if each.message_id else with_id(each)
        body_file = next(files) if len(message.body) > LARGEST_INLINE_BODY else None
        admitted.append(admit(entity, message, body_file, has_own_id))
    return admitted


def with_id(message: Incoming) -> tuple[Incoming, bool]:
    """Return the message with an id, and whether the sender gave that id. An empty id counts as missing.

    A message without an id gets a fresh one, which is never a duplicate.
    """
    if message.message_id:
        return message, True
    fresh = uuid.uuid4().hex
    return message._replace(head=amqp.with_properties(message.head, {"message_id": fresh}), message_id=fresh), False


def check(entity: Queue | Topic, namespace: Namespace, messages: Sequence[Incoming]) -> int:
    """Raise unless the entity accepts all of the messages. Return their total size."""
    if len(messages) > MOST_MESSAGES:
        raise too_many_messages(len(messages))
    most = largest_message(entity)
    total = 0
    for head, body, message_id, session, partition_key, _, _, body_in_file, _ in messages:
        check_message(entity, namespace, message_id=message_id, session=session, partition_key=partition_key)
        size = len(head) + len(body) + body_in_file
        if size > most:
            raise message_too_large(entity.path, size, most)
        total += size
    if len(messages) > 1 and total > largest_batch(entity):
        raise batch_too_large(total, largest_batch(entity))
    return total


def check_encoded(entity: Queue | Topic, size: int, *, is_batch: bool) -> None:
    """Raise `MessageTooLarge` if encoded bytes are too large for any content, so that they need not be decoded."""
    most = largest_message(entity)
    if size > most + _ENVELOPE:
        raise batch_too_large(size, largest_batch(entity)) if is_batch else message_too_large(entity.path, size, most)


def largest_batch(entity: Queue | Topic) -> int:
    """Return the maximum total size of the messages in a batch."""
    return min(largest_message(entity), LARGEST_BATCH)


def message_too_large(path: str, size: object, most: int) -> MessageTooLarge:
    """Return the error for a message that exceeds the limit of its entity. `size` may be a text."""
    return MessageTooLarge(
        f"The received message (size:{size}) exceeds the limit ({most}) currently allowed on the entity '{path}'."
    )


def batch_too_large(size: object, most: int) -> MessageTooLarge:
    """Return the error for a batch that exceeds a limit. `size` may be a text."""
    return MessageTooLarge(
        f"The received batch of messages (size:{size}) exceeds the limit ({most}) currently allowed."
    )


def empty_batch() -> BadRequest:
    """Return the error for a batch without messages."""
    return BadRequest("The batch of messages is empty.")


def too_many_messages(count: int, most: int = MOST_MESSAGES) -> BadRequest:
    """Return the error for a batch of more messages than allowed."""
    return BadRequest(f"The batch holds {count} messages, {most} is the limit.")


def check_quota(entity: Queue | Topic, held: int, added: int) -> None:
    """Raise `QuotaExceeded` if `added` bytes do not fit.

    `held` is the size of what the entity holds, including the pipeline.
    """
    most = entity.max_size_in_megabytes << 20
    if held + added > most:
        kind = "Topic" if isinstance(entity, Topic) else "Queue"
        raise QuotaExceeded(
            f"The maximum entity size has been reached or exceeded for {kind}: '{entity.path}'. "
            f"Size of entity in bytes:{held}, Max entity size in bytes:{most}."
        )


def check_forget(entity: Queue | Topic, message: Incoming) -> None:
    """Raise unless the entity can forget the id of a message. The entity may be disabled."""
    if entity.window is None:
        raise InvalidOperation(f"'{entity.path}' does not detect duplicates, so it remembers no ids.")
    if entity.detection_key == BODY:
        raise InvalidOperation(f"'{entity.path}' detects duplicates by their bodies, so it cannot forget an id.")
    if not message.message_id:
        raise BadRequest("The id to forget is empty.")
    check_id("MessageId", message.message_id)
    for name, value in (("SessionId", message.session), ("PartitionKey", message.partition_key)):
        if value is not None:
            check_id(name, value)
    check_partition_key(message.session, message.partition_key)


class SequenceNumbers:
    """Assigns sequence numbers, each once.

    They count from 1 for each entity, or for each partition of an entity, with the partition in the top bits.

    Call it only in the event loop, right before the append: that way numbers increase in the order of the inbox. Only a
    scheduled message may get its number in advance: it gets another one when it falls due.
    """

    def __init__(self, highest: Iterable[tuple[int, int, int]] = ()) -> None:
        """`highest` has triples (entity, partition, highest number assigned so far)."""
        self._last: dict[tuple[int, int], int] = {}
        for entity, partition, sequence in highest:
            self._last[entity, partition] = max(sequence, self._last.get((entity, partition), 0))

    def forget(self, entities: Container[int]) -> None:
        """Forget entities that were deleted. They never get a number again."""
        self._last = {key: last for key, last in self._last.items() if key[0] not in entities}

    def next(self, entity: int, partition: int = 0) -> int:
        """Return the next number of an entity, or of one of its partitions."""
        last = self._last.get((entity, partition), partition << PARTITION_SHIFT)
        self._last[entity, partition] = last + 1
        return last + 1


def stored_id(identity: str | bytes) -> str:
    """Return the text under which a message's id is stored."""
    return identity if isinstance(identity, str) else identity.hex()


def number_of(
    entity: Queue | Topic, message: Incoming, numbers: SequenceNumbers, turn: int, partition: int | None = None
) -> int:
    """Return the next sequence number for a message with an id, in its partition or in the given one."""
    if partition is None:
        assert message.message_id is not None
        partition = (
            partition_of(
                message.session,
                message.partition_key,
                message.message_id,
                detects=entity.requires_duplicate_detection,
                turn=turn,
            )
            if entity.enable_partitioning
            else 0
        )
    return numbers.next(entity.id, partition)


def row_of(admitted: Admitted, numbers: SequenceNumbers, now: int, turn: int) -> Row:
    """Return the row of a message, with the next sequence number.

    `turn` chooses the partition of a message without a key.
    """
    entity, message, is_checked, body_file, sequence, origin, _, _ = admitted
    head, body, identity, session, partition_key, scheduled, own_ttl, body_in_file, _ = message
    assert identity is not None
    of_entity = entity.id
    if sequence is None:
        sequence = number_of(entity, message, numbers, turn, None if origin is None else origin.partition)
    elif scheduled is None or scheduled <= now:
        scheduled = now + 1
    # A literal, because a call of `Row` takes twice as long.
    row: Row = {
        "entity": of_entity,
        "sequence": sequence,
        "time": now,
        "window": 0,
        "message_id": stored_id(identity),
        "session": session,
        "partition_key": partition_key,
        "hops": 0,
        "size": len(head) + len(body) + body_in_file,
        "head": head,
        "body": None if body_file else body,
        "body_file": body_file,
    }
    ttl = entity.default_message_time_to_live
    if own_ttl is not None and own_ttl < ttl:
        ttl = own_ttl
    if ttl < NO_LIMIT:
        row["expires"] = now + ttl
    if scheduled is not None and scheduled > now:
        row["scheduled"] = min(scheduled, LAST_MOMENT)
    if is_checked and (window := entity.window) is not None:
        effective = effective_partition_key(entity.enable_partitioning, session, partition_key)
        if (detection_key := entity.detection_key) is None:
            row["key"] = key_of(of_entity, identity, effective)
            row["window"] = window
        elif (counted := _counted(detection_key, message)) is not None:
            row["key"] = key_of_kind(of_entity, *counted, effective)
            row["window"] = window
    if origin is not None:
        row["origin_entity"] = origin.entity
        row["origin_sequence"] = origin.sequence
        row["hops"] = origin.hops
        if origin.scheduled is not None:
            row["scheduled"] = origin.scheduled
        ends = [end for end in (origin.expires, row.get("expires")) if end is not None]
        row["expires"] = min(ends, default=None)
    return row


def forget_of(admitted: Admitted, numbers: SequenceNumbers, now: int, turn: int) -> Row:
    """Return the row that makes detection forget the key of a message, which has passed `check_forget`.

    It takes a sequence number of its own, which names it in the record. Where a property counts, the message id is the
    text of the property.
    """
    entity, message = admitted.entity, admitted.message
    if entity.detection_key is not None:
        user = {property_of(entity.detection_key) or "": message.message_id}
        admitted = admitted._replace(message=message._replace(head=amqp.head.encode_head(None, user)))
    row = row_of(admitted, numbers, now, turn)
    row["window"] = -row["window"]
    row["expires"] = None
    return row


def with_body_ids(messages: Sequence[Incoming]) -> list[Incoming]:
    """Return the messages with the ids of their bodies. Takes long for large bodies."""
    return [message._replace(body_id=_counted(BODY, message)) for message in messages]


def _counted(detection_key: str, message: Incoming) -> CountedId | None:
    """Return the id that counts under a detection key, or None.

    A message that cannot be decoded has no id. It is accepted like one without a MessageId: the broker does not check
    the application properties of other messages either.
    """
    if detection_key == BODY and (message.body_id is not None or message.body_in_file):
        return message.body_id
    try:
        return counted_id(detection_key, message.head, message.body)
    except (DecodeError, EncodeError):
        return None
