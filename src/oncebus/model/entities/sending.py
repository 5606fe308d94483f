"""Checks whether an entity accepts a message, and whether it can have a receiver."""

from __future__ import annotations

from oncebus.model.entities.descriptions import EntityStatus, Namespace, Queue, Subscription, Tier, Topic
from oncebus.model.entities.errors import BadRequest, EntityDisabled, InvalidOperation, OutOfRange
from oncebus.model.filters.properties import LONGEST_ID
from oncebus.values.sizes import utf16_length


def may_send(status: EntityStatus) -> bool:
    """Return whether an entity with this status accepts messages."""
    return status in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)


def may_receive(status: EntityStatus) -> bool:
    """Return whether messages can be received from an entity with this status."""
    return status in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


def check_message(
    entity: Queue | Topic,
    namespace: Namespace,
    *,
    message_id: str | bytes | None,
    session: str | None,
    partition_key: str | None,
) -> None:
    """Raise an `EntityError` unless the entity accepts the message. An empty session is a session like any other."""
    # The usual answers to the first two questions come without a call: this is asked for each message.
    if entity.status is not EntityStatus.ACTIVE and not may_send(entity.status):
        raise EntityDisabled(entity.path)
    if message_id is not None and not (
        type(message_id) is str and len(message_id) <= LONGEST_ID and message_id.isascii()
    ):
        check_id("MessageId", message_id)
    if partition_key is not None:
        check_id("PartitionKey", partition_key)
    if session is not None:
        check_id("SessionId", session)
        if namespace.tier is Tier.BASIC:
            raise BadRequest(
                "Cannot operate on type BrokeredMessage with property 'SessionId' because the namespace"
                f" '{namespace.name}' is using 'Basic' tier.",
                field="SessionId",
            )
        check_partition_key(session, partition_key)
    elif isinstance(entity, Queue) and entity.requires_session:
        raise InvalidOperation(
            "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session"
            " support enabled can only receive messages that have the SessionId set to a valid value.",
            field="SessionId",
        )


def check_receiver(
    entity: Queue | Subscription, *, is_sessionful: bool, is_of_dead_letters: bool = False, is_browser: bool = False
) -> None:
    """Raise an `EntityError` unless the entity can have the receiver.

    Dead-letter queues have no sessions. A browser only peeks, so it needs no session and may open an entity that
    forwards.
    """
    if not may_receive(entity.status):
        raise EntityDisabled(entity.path)
    requires_session = entity.requires_session and not is_of_dead_letters
    if is_sessionful and not requires_session:
        raise InvalidOperation(
            "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure"
            " RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
        )
    if is_browser:
        return
    if requires_session and not is_sessionful:
        raise InvalidOperation(
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
        )
    forwards_to = entity.forward_dead_lettered_messages_to if is_of_dead_letters else entity.forward_to
    if forwards_to is not None:
        raise InvalidOperation("Cannot create a message receiver on an entity with auto-forwarding enabled.")


def check_partition_key(session: str | None, partition_key: str | None) -> None:
    """Raise `BadRequest` for a partition key that differs from the session. An empty one counts as none here."""
    if session and partition_key and partition_key != session:
        text = f"PartitionKey:{partition_key} cannot be set to a different value than SessionId:{session}."
        raise BadRequest(text, field="PartitionKey")


def check_id(name: str, value: str | bytes) -> None:
    """Raise `BadRequest` for an id that is too long or contains half of a surrogate pair."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"The argument '{name}' contains a lone surrogate at position {error.start}.",
                field=name,
                parameter=name,
            ) from None
    if (len(value) if isinstance(value, bytes) else utf16_length(value)) > LONGEST_ID:
        text = f"The argument '{name}' cannot exceed {LONGEST_ID} characters."
        raise OutOfRange(text, field=name, parameter=name)
