"""The sample configuration of the official emulator, with a real `oncebus serve` in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

from tests.programs.serve.clients import Client
from tests.programs.serve.programs import until
from tests.programs.serve.services import PATIENCE, service
from tests.protocols.atom.admin import VERSION

SHORT = 1.0
"""How long to wait for messages that should not arrive."""

_TIMES = {"DefaultMessageTimeToLive": "PT1H", "DuplicateDetectionHistoryTimeWindow": "PT20S"}
_RECEIVED = {
    "DeadLetteringOnMessageExpiration": False,
    "ForwardDeadLetteredMessagesTo": "",
    "ForwardTo": "",
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 3,
    "RequiresSession": False,
}
_EVERY_SYSTEM_PROPERTY = {
    "ContentType": "application/text",
    "CorrelationId": "id1",
    "Label": "subject1",
    "MessageId": "msgid1",
    "ReplyTo": "someQueue",
    "ReplyToSessionId": "sessionId",
    "SessionId": "session1",
    "To": "xyz",
}


def subscription(number: int, rule: str | None = None, **properties: Any) -> dict[str, Any]:
    rules = [] if rule is None else [{"Name": rule, "Properties": properties}]
    made = {"Name": f"subscription.{number}", "Properties": {"DefaultMessageTimeToLive": "PT1H", **_RECEIVED}}
    return {**made, "Rules": rules} if rules else made


CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "queue.1", "Properties": {**_TIMES, **_RECEIVED, "RequiresDuplicateDetection": False}}
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {**_TIMES, "RequiresDuplicateDetection": False},
                        "Subscriptions": [
                            subscription(
                                1,
                                "app-prop-filter-1",
                                FilterType="Correlation",
                                CorrelationFilter=_EVERY_SYSTEM_PROPERTY,
                            ),
                            subscription(
                                2,
                                "user-prop-filter-1",
                                FilterType="Correlation",
                                CorrelationFilter={"Properties": {"prop1": "value1"}},
                            ),
                            subscription(3),
                            subscription(
                                4,
                                "sql-filter-1",
                                FilterType="Sql",
                                SqlFilter={"SqlExpression": "sys.MessageId = '123456' AND userProp1 = 'value1'"},
                                Action={"SqlExpression": "SET sys.To = 'Entity'"},
                            ),
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def with_comments(config: object) -> str:
    text = json.dumps(config, indent=2)
    for member in ("Queues", "Topics", "Rules"):
        text = text.replace(f'"{member}":', f'/* what "{member}" there are */ "{member}": // and now they come\n')
    return f"// The whole of it\n{text}\n// is read.\n"


class Emulator(NamedTuple):
    """A broker in place of the emulator."""

    http: Client
    string: str


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("emulator")
    path = folder / "Config.json"
    path.write_text(with_comments(CONFIG))
    with service(folder, "emulator", options=["--config", path, "--emulator"]) as running:
        url = running.ready()
        printed = running.out.read_text().splitlines()[0]
        found = re.match(r"Endpoint=sb://localhost:(\d+);", printed)
        assert found is not None, printed
        known = (
            f"Endpoint=sb://localhost:{found[1]};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
        )
        assert printed == known
        yield Emulator(Client(url, folder / "data"), known)


def text(message: ServiceBusReceivedMessage) -> str:
    return b"".join(message.body).decode()


def drained(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive and complete this many messages, and check that there are no more."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        some = receiver.receive_messages(10, max_wait_time=PATIENCE)
        assert some, f"{len(found)} of {count} came"
        for message in some:
            receiver.complete_message(message)
        found += some
    assert receiver.receive_messages(10, max_wait_time=SHORT) == []
    return found


def test_its_queue_has_the_properties_of_the_file(emulator: Emulator) -> None:
    status, _, said = emulator.http.request("GET", f"/queue.1?{VERSION}")
    assert status == 200
    for element, value in (
        ("DefaultMessageTimeToLive", "PT1H"),
        ("LockDuration", "PT1M"),
        ("MaxDeliveryCount", "3"),
        ("RequiresDuplicateDetection", "false"),
        ("RequiresSession", "false"),
    ):
        assert f"<{element}>{value}</{element}>" in said


def test_its_queue_dead_letters_after_three_deliveries(emulator: Emulator) -> None:
    with ServiceBusClient.from_connection_string(emulator.string) as client:
        with client.get_queue_sender("queue.1") as sender:
            # The queue does not detect duplicates.
            sender.send_messages([ServiceBusMessage(body, message_id="same") for body in ("one", "two", "bad")])
        with client.get_queue_receiver("queue.1") as receiver:
            completed: list[str] = []
            deliveries = 0
            while len(completed) < 2 or deliveries < 3:
                some = receiver.receive_messages(1, max_wait_time=PATIENCE)
                assert some, (completed, deliveries)
                for message in some:
                    if text(message) == "bad":
                        deliveries += 1
                        receiver.abandon_message(message)
                    else:
                        receiver.complete_message(message)
                        completed.append(text(message))
            assert (completed, deliveries) == (["one", "two"], 3)
            assert receiver.receive_messages(1, max_wait_time=SHORT) == []
        with client.get_queue_receiver("queue.1", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (message,) = drained(dead, 1)
            assert (text(message), message.dead_letter_reason) == ("bad", "MaxDeliveryCountExceeded")


def test_its_subscriptions_get_the_messages_that_match(emulator: Emulator) -> None:
    system: dict[str, Any] = {
        "content_type": "application/text",
        "correlation_id": "id1",
        "subject": "subject1",
        "message_id": "msgid1",
        "reply_to": "someQueue",
        "reply_to_session_id": "sessionId",
        "session_id": "session1",
        "to": "xyz",
    }
    messages: dict[str, dict[str, Any]] = {
        "system": system,
        "nearly system": {**system, "subject": "another"},
        "own": {"application_properties": {"prop1": "value1", "other": 5}},
        "nearly own": {"application_properties": {"prop1": "value2"}},
        "sql": {"message_id": "123456", "application_properties": {"userProp1": "value1"}},
        "nearly sql": {"message_id": "123456"},
        "plain": {},
    }
    expected = {1: ["system"], 2: ["own"], 3: list(messages), 4: ["sql"]}
    with ServiceBusClient.from_connection_string(emulator.string) as client:
        with client.get_topic_sender("topic.1") as sender:
            sender.send_messages([ServiceBusMessage(body, **properties) for body, properties in messages.items()])

        def arrived() -> bool:
            return all(
                emulator.http.metric("messages", entity=f"topic.1/Subscriptions/subscription.{number}", state="active")
                >= len(bodies)
                for number, bodies in expected.items()
            )

        until(arrived, "all messages are in the subscriptions", PATIENCE)
        found: dict[int, list[ServiceBusReceivedMessage]] = {}
        for number, bodies in expected.items():
            with client.get_subscription_receiver("topic.1", f"subscription.{number}") as receiver:
                found[number] = drained(receiver, len(bodies))
    assert {number: [text(each) for each in some] for number, some in found.items()} == expected
    # The action changes only the copy for the rule's own subscription.
    assert [each.to for each in found[4]] == ["Entity"]
    assert [each.to for each in found[3] if text(each) == "sql"] == [None]
