"""The broker for tests, used by the official clients in the same process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import ServiceBusError

from oncebus.model.access import make_token
from oncebus.model.entities import NotFound
from oncebus.pipeline.driver import LocalDriver
from oncebus.testing import BrokerFailed, run_broker
from oncebus.testing.broker import Broker
from oncebus.values.errors import OncebusError

DETECTING = {"name": "orders", "requiresDuplicateDetection": True}
QUICK: dict[str, Any] = {"retry_backoff_factor": 0.01, "socket_timeout": 0.05}


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with run_broker([DETECTING, "plain"]) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker) -> Broker:
    running.reset()
    return running


def client(broker: Broker) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(broker.connection_string, **QUICK)


def send(broker: Broker, queue: str, *messages: ServiceBusMessage) -> None:
    with client(broker) as connected, connected.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def take(broker: Broker, queue: str, seconds: float = 0.5) -> list[str | None]:
    with client(broker) as connected, connected.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver:
        return [each.message_id for each in receiver.receive_messages(10, max_wait_time=seconds)]


def test_a_message_sent_twice_is_delivered_once(broker: Broker) -> None:
    send(broker, "orders", ServiceBusMessage("first", message_id="1"), ServiceBusMessage("again", message_id="1"))
    assert take(broker, "orders") == ["1"]
    assert broker.duplicates("orders") == ["1"]


def test_reset_forgets_messages_ids_and_entities_that_were_not_given(broker: Broker) -> None:
    broker.create(["of-one-test"])
    send(broker, "of-one-test", ServiceBusMessage("x"))
    send(broker, "orders", ServiceBusMessage("x", message_id="1"))
    broker.reset()
    with pytest.raises(ServiceBusError):
        send(broker, "of-one-test", ServiceBusMessage("x"))
    assert broker.duplicates("orders") == []
    with pytest.raises(NotFound, match="of-one-test"):
        broker.duplicates("of-one-test")
    send(broker, "orders", ServiceBusMessage("y", message_id="1"))
    assert take(broker, "orders") == ["1"]
    assert broker.duplicates("orders") == []


def test_a_client_stays_connected_over_a_reset(broker: Broker) -> None:
    with client(broker) as connected:
        for _ in range(3):
            with connected.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="1"))
            broker.reset()
        with connected.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x", message_id="1"))
    assert take(broker, "orders") == ["1"]


def test_entities_come_from_lists_and_both_kinds_of_files(tmp_path: Path) -> None:
    config, listed = tmp_path / "Config.json", tmp_path / "entities.json"
    queues = [{"Name": "of-config", "Properties": {}}]
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": queues}]}}))
    topic = {"type": "topic", "name": "prices"}
    listed.write_text(json.dumps([topic, {"type": "subscription", "topic": "prices", "name": "all"}]))
    with run_broker(config) as broker:
        broker.entities(str(listed), ["of-list"])
        broker.reset()
        for queue in ("of-config", "of-list", "prices"):
            send(broker, queue, ServiceBusMessage("x", message_id=queue))
        assert take(broker, "prices/Subscriptions/all") == ["prices"]
        assert take(broker, "of-config") == ["of-config"]
    with pytest.raises(BrokerFailed, match="has ended"):
        broker.reset()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"name": "orders", "lockDurations": "PT1M"}], "list of entities.*lockDurations"),
        (Path("/nowhere/entities.json"), "'/nowhere/entities.json'.*cannot be read"),
    ],
)
def test_bad_entities_are_refused_and_named(broker: Broker, given: Any, words: str) -> None:
    with pytest.raises(OncebusError, match=words):
        broker.entities(given)
    broker.reset()


def test_time_moves_on_for_locks_schedules_windows_and_lives(broker: Broker) -> None:
    with client(broker) as connected, connected.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="locked"))
        with connected.get_queue_receiver("orders") as receiver:
            (first,) = receiver.receive_messages(1, max_wait_time=5)
            broker.advance(61)
            (again,) = receiver.receive_messages(1, max_wait_time=5)
            assert (first.delivery_count, again.delivery_count) == (0, 1)
            receiver.complete_message(again)
        due = datetime.now(UTC) + timedelta(hours=5)
        sender.schedule_messages(ServiceBusMessage("x", message_id="later"), due)
        sender.send_messages(ServiceBusMessage("x", message_id="short", time_to_live=timedelta(minutes=2)))
        broker.advance(timedelta(hours=4))
        assert take(broker, "orders") == []
        broker.advance(timedelta(hours=1))
        assert take(broker, "orders") == ["later"]
        # The window of ten minutes is over, so the id is new again.
        sender.send_messages(ServiceBusMessage("x", message_id="locked"))
        assert take(broker, "orders") == ["locked"]
    assert broker.duplicates("orders") == []
    with pytest.raises(ValueError, match="Time cannot go back: -1 seconds"):
        broker.advance(-1)


def test_after_a_reset_it_is_now_again(broker: Broker) -> None:
    string = broker.connection_string
    broker.advance(timedelta(days=30))
    broker.reset()
    assert broker.connection_string == string
    send(broker, "plain", ServiceBusMessage("x"))
    with client(broker) as connected, connected.get_queue_receiver("plain") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
    assert message.enqueued_time_utc is not None
    assert abs(message.enqueued_time_utc - datetime.now(UTC)) < timedelta(hours=1)


def test_a_client_whose_answer_is_lost_sends_again_and_the_copy_is_dropped(broker: Broker) -> None:
    broker.lose_answers(2)
    send(broker, "orders", ServiceBusMessage("x", message_id="1"))
    assert take(broker, "orders") == ["1"]
    assert broker.duplicates("orders") == ["1", "1"]


def test_without_detection_a_lost_answer_makes_two_messages(broker: Broker) -> None:
    broker.lose_answers()
    send(broker, "plain", ServiceBusMessage("x", message_id="1"))
    assert take(broker, "plain") == ["1", "1"]


def test_an_http_client_does_not_get_a_lost_answer_either(broker: Broker) -> None:
    broker.lose_answers()
    with httpx.Client(headers=authorization(broker)) as client:
        with pytest.raises(httpx.TransportError):
            client.post(f"{broker.url}/plain/messages", content=b"x")
        assert client.post(f"{broker.url}/plain/messages", content=b"x").status_code == 201
    assert len(take(broker, "plain")) == 2


def test_a_reset_loses_no_more_answers(broker: Broker) -> None:
    broker.lose_answers(100)
    broker.reset()
    send(broker, "orders", ServiceBusMessage("x", message_id="1"))
    assert broker.duplicates("orders") == []


async def _send_and_take(string: str) -> str | None:
    async with AsyncClient.from_connection_string(string, **QUICK) as connected:
        async with connected.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage("x", message_id="1")] * 2)
        async with connected.get_queue_receiver("orders") as receiver:
            (message,) = await receiver.receive_messages(5, max_wait_time=5)
            return message.message_id


def test_the_client_for_asyncio_works_in_a_loop_of_its_own(broker: Broker) -> None:
    assert asyncio.run(_send_and_take(broker.connection_string)) == "1"


def authorization(broker: Broker, key: str | None = None) -> dict[str, str]:
    parts = dict(part.partition("=")[::2] for part in broker.connection_string.split(";"))
    token = make_token("sb://localhost/", parts["SharedAccessKeyName"], key or parts["SharedAccessKey"], 1 << 60)
    return {"authorization": token}


def test_other_languages_reset_over_http(broker: Broker) -> None:
    send(broker, "plain", ServiceBusMessage("x"))
    assert httpx.post(f"{broker.url}/$reset").status_code == 401
    assert httpx.get(f"{broker.url}/$reset", headers=authorization(broker)).status_code == 405
    assert httpx.post(f"{broker.url}/$reset", headers=authorization(broker)).status_code == 204
    assert take(broker, "plain") == []


def test_two_brokers_do_not_meet(broker: Broker) -> None:
    with run_broker(["orders"]) as other:
        send(other, "orders", ServiceBusMessage("x", message_id="other"))
        assert take(broker, "orders") == []
        assert take(other, "orders") == ["other"]


def test_a_pipeline_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:

    with run_broker(["orders"]) as broker:

        def fail(_: LocalDriver) -> bool:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(LocalDriver, "step", fail)
        send(broker, "orders", ServiceBusMessage("x"))
        with pytest.raises(BrokerFailed, match="No space left"):
            create_until_it_fails(broker)


def create_until_it_fails(broker: Broker) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        broker.create(["another"])
