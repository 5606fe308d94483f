from __future__ import annotations

from dataclasses import replace

import pytest

from oncebus.model.entities import (
    BadRequest,
    EntityDisabled,
    EntityError,
    EntityStatus,
    InvalidOperation,
    Namespace,
    OutOfRange,
    Queue,
    Subscription,
    Tier,
    Topic,
    check_message,
    check_receiver,
    may_send,
)
from oncebus.model.entities.sending import may_receive
from oncebus.values.errors import ErrorKind

PLAIN = Queue(name="orders")
SESSIONS = Queue(name="orders", requires_session=True)
SUBSCRIPTION = Subscription(topic="news", name="all")
STANDARD = Namespace("ns")
BASIC = Namespace("ns", Tier.BASIC)
FULL = "\U0001f600" * 64  # 128 UTF-16 units in 64 characters


def check(
    entity: Queue | Topic,
    namespace: Namespace = STANDARD,
    message_id: str | bytes | None = "id",
    session: str | None = None,
    partition_key: str | None = None,
) -> None:
    check_message(entity, namespace, message_id=message_id, session=session, partition_key=partition_key)


@pytest.mark.parametrize("value", ["12345.2017/Payment", "ödeme", "x" * 128, "ö" * 128, FULL, ""])
def test_ids_of_at_most_128_units_are_accepted(value: str) -> None:
    check(PLAIN, message_id=value)
    check(PLAIN, partition_key=value)
    check(PLAIN, session=value, partition_key=value)


def test_binary_ids_and_missing_ids_are_accepted() -> None:
    check(PLAIN, message_id=b"\xff" * 128)
    check(PLAIN, message_id=None)


@pytest.mark.parametrize("value", ["x" * 129, "ö" * 129, FULL + "x"])
def test_longer_ids_are_refused(value: str) -> None:
    text = "The argument '{0}' cannot exceed 128 characters.\nParameter name: {0}"
    with pytest.raises(OutOfRange) as raised:
        check(PLAIN, message_id=value)
    assert str(raised.value) == text.format("MessageId")
    with pytest.raises(OutOfRange) as raised:
        check(PLAIN, session=value)
    assert str(raised.value) == text.format("SessionId")
    with pytest.raises(OutOfRange) as raised:
        check(PLAIN, partition_key=value)
    assert str(raised.value) == text.format("PartitionKey")


def test_a_longer_binary_id_is_refused() -> None:
    with pytest.raises(OutOfRange):
        check(PLAIN, message_id=b"x" * 129)


@pytest.mark.parametrize("value", ["ab\ud800", "ab\udc00c"])
def test_half_of_a_surrogate_pair_is_refused(value: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check(PLAIN, message_id=value)
    assert str(raised.value) == (
        "The argument 'MessageId' contains a lone surrogate at position 2.\nParameter name: MessageId"
    )


def test_a_queue_with_sessions_refuses_a_message_without_one() -> None:
    with pytest.raises(InvalidOperation) as raised:
        check(SESSIONS, session=None)
    assert str(raised.value) == (
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session"
        " support enabled can only receive messages that have the SessionId set to a valid value."
    )
    assert (raised.value.kind, raised.value.field) == (ErrorKind.NOT_ALLOWED, "SessionId")
    check(SESSIONS, session="a")
    check(SESSIONS, session="")


def test_a_session_is_accepted_where_none_is_required() -> None:
    check(PLAIN, session="a")
    check(Topic(name="news"), session="a")


def test_with_a_session_the_partition_key_must_be_the_same() -> None:
    check(SESSIONS, session="a", partition_key="a")
    check(SESSIONS, session="a", partition_key="")
    check(PLAIN, session="", partition_key="b")
    check(PLAIN, partition_key="b")
    for queue in (PLAIN, SESSIONS):
        with pytest.raises(BadRequest) as raised:
            check(queue, session="a", partition_key="b")
        assert str(raised.value) == "PartitionKey:b cannot be set to a different value than SessionId:a."
    with pytest.raises(BadRequest):
        check(PLAIN, session="a", partition_key="A")


def test_basic_has_no_sessions() -> None:
    check(PLAIN, BASIC, partition_key="a")
    with pytest.raises(BadRequest) as raised:
        check(PLAIN, BASIC, session="a")
    assert str(raised.value) == (
        "Cannot operate on type BrokeredMessage with property 'SessionId' because the namespace 'ns' is using"
        " 'Basic' tier."
    )


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_the_status_decides_about_sending_and_receiving(status: EntityStatus, sends: bool, receives: bool) -> None:
    assert (may_send(status), may_receive(status)) == (sends, receives)
    queue = replace(PLAIN, status=status)
    if sends:
        check(queue)
    else:
        with pytest.raises(EntityDisabled, match=r"^Messaging entity 'orders' is currently disabled\.$"):
            check(queue)
    if receives:
        check_receiver(queue, is_sessionful=False)
    else:
        with pytest.raises(EntityDisabled) as raised:
            check_receiver(queue, is_sessionful=False)
        assert (raised.value.kind, raised.value.sub_code) == (ErrorKind.DISABLED, 40300)


NOT_SESSIONFUL = "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
SESSIONFUL = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure"
    " RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
)
FORWARDING = "Cannot create a message receiver on an entity with auto-forwarding enabled."


@pytest.mark.parametrize(
    ("entity", "is_sessionful", "is_of_dead_letters", "is_browser", "text"),
    [
        (PLAIN, False, False, False, None),
        (PLAIN, True, False, False, SESSIONFUL),
        (SESSIONS, True, False, False, None),
        (SESSIONS, False, False, False, NOT_SESSIONFUL),
        (SESSIONS, False, False, True, None),
        (SESSIONS, False, True, False, None),
        (SESSIONS, True, True, False, SESSIONFUL),
        (replace(PLAIN, forward_to="x"), False, False, False, FORWARDING),
        (replace(PLAIN, forward_to="x"), False, True, False, None),
        (replace(PLAIN, forward_to="x"), False, False, True, None),
        (replace(SUBSCRIPTION, forward_dead_lettered_messages_to="x"), False, False, False, None),
        (replace(SUBSCRIPTION, forward_dead_lettered_messages_to="x"), False, True, False, FORWARDING),
        (replace(SUBSCRIPTION, requires_session=True), False, False, False, NOT_SESSIONFUL),
    ],
)
def test_a_receiver_must_fit_the_entity(
    entity: Queue | Subscription, is_sessionful: bool, is_of_dead_letters: bool, is_browser: bool, text: str | None
) -> None:
    raised = None
    try:
        check_receiver(
            entity, is_sessionful=is_sessionful, is_of_dead_letters=is_of_dead_letters, is_browser=is_browser
        )
    except EntityError as error:
        raised = str(error)
    assert raised == text
