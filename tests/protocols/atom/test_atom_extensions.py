"""Extensions beyond Azure as the official administration client sees them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

from oncebus.model.entities import Queue
from oncebus.values.durations import DAY
from tests.protocols.atom.admin import VERSION, description
from tests.protocols.atom.served import administration, served
from tests.protocols.http.http_front import Front, Shared


def test_the_client_creates_and_updates_a_window_of_30_days_where_the_operator_allows_it(tmp_path: Path) -> None:
    with served(tmp_path, longest_window=30 * DAY) as service, administration(service) as client:
        made = client.create_queue(
            "q", requires_duplicate_detection=True, duplicate_detection_history_time_window=timedelta(days=20)
        )
        made.duplicate_detection_history_time_window = timedelta(days=30)
        client.update_queue(made)
        assert client.get_queue("q").duplicate_detection_history_time_window == timedelta(days=30)
        with pytest.raises(HttpResponseError, match=r"must be between 00:00:20 and 30\.00:00:00"):
            client.create_topic("t", duplicate_detection_history_time_window=timedelta(days=31))


def test_the_client_keeps_a_detection_key_that_it_does_not_know(tmp_path: Path) -> None:
    with served(tmp_path) as service, administration(service) as client:
        queue = Queue(name="q", requires_duplicate_detection=True, detection_key="property:order")
        service.run(service.broker.change(lambda catalogue, now: catalogue.create(queue, now)))
        found = client.get_queue("q")
        found.max_delivery_count = 3
        client.update_queue(found)
        assert [each.name for each in client.list_queues()] == ["q"]
        changed = service.broker.catalogue.queue("q")
        assert (changed.max_delivery_count, changed.detection_key) == (3, "property:order")
        found.requires_duplicate_detection = False
        with pytest.raises(HttpResponseError, match="RequiresDuplicateDetection property of an existing Queue cannot"):
            client.update_queue(found)


def test_the_client_cannot_switch_on_detection_but_the_operation_can(tmp_path: Path) -> None:
    with served(tmp_path) as service, administration(service) as client:
        made = client.create_queue("q")
        made.requires_duplicate_detection = True
        with pytest.raises(HttpResponseError, match="RequiresDuplicateDetection property of an existing Queue cannot"):
            client.update_queue(made)
        service.run(service.broker.change(lambda catalogue, now: catalogue.switch_on_detection("q", None, now)))
        assert client.get_queue("q").requires_duplicate_detection


EXTENSION = '<DetectionKey xmlns="urn:oncebus:extensions">{}</DetectionKey>'
DETECTS = "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>"


def test_a_detection_key_is_an_element_of_its_own_xml_namespace(shared: Shared) -> None:
    async def play(front: Front) -> None:
        for name, more, shown in (("plain", "", False), ("default", EXTENSION.format("messageId"), False)):
            body = description("QueueDescription", DETECTS + more)
            assert (await front.ask("PUT", f"/{name}", body, query=VERSION)).status == 201
            assert ("DetectionKey" in (await front.ask("GET", f"/{name}", query=VERSION)).text) == shown
        body = description("QueueDescription", DETECTS + EXTENSION.format("property:a&amp;b"))
        assert (await front.ask("PUT", "/keyed", body, query=VERSION)).status == 201
        answer = await front.ask("GET", "/keyed", query=VERSION)
        assert EXTENSION.format("property:a&amp;b") in answer.text
        # A client that sends back unknown elements, as that for .NET, changes nothing.
        for more, status in ((EXTENSION.format("property:a&amp;b"), 200), ("", 200), (EXTENSION.format("body"), 400)):
            body = description("QueueDescription", DETECTS + more)
            changed = await front.ask("PUT", "/keyed", body, {"If-Match": "*"}, query=VERSION)
            assert changed.status == status
        assert "The value for the DetectionKey property of an existing Queue cannot be changed." in changed.text
        assert front.broker.catalogue.queue("keyed").detection_key == "property:a&b"

    shared(play)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (DETECTS + "<DetectionKey>body</DetectionKey>", "DetectionKey"),
        (DETECTS + '<Other xmlns="urn:oncebus:extensions">body</Other>', "Other"),
        (DETECTS + EXTENSION.format("sessionId"), "'sessionId' is not one of messageId, body, property:NAME."),
        (DETECTS + EXTENSION.format("property:"), "'property:' is not one of"),
        (DETECTS + EXTENSION.format("property:" + "x" * 129), "exceeds 128 characters"),
        (EXTENSION.format("body"), "The detection key 'body' needs duplicate detection, which is off."),
    ],
)
def test_other_elements_and_values_are_refused(shared: Shared, content: str, text: str) -> None:
    async def play(front: Front) -> None:
        answer = await front.ask("PUT", "/wrong", description("QueueDescription", content), query=VERSION)
        assert (answer.status, text in answer.text.replace("&apos;", "'")) == (400, True), answer.text

    shared(play)
