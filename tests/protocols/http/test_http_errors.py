"""Invalid and impossible requests: the status, the text, and no partial effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oncebus import amqp
from oncebus.amqp.types import EncodeError
from oncebus.broker.clock import ClockLeapt
from oncebus.broker.errors import BrokerClosed, ServerBusy
from oncebus.broker.sending import MessageTooLarge
from oncebus.engine.inbox import InboxFull
from oncebus.engine.store import StoreFull
from oncebus.model.access import AccessRefused, Reason
from oncebus.model.entities import BadRequest, EntityDisabled, NotFound, QuotaExceeded
from oncebus.model.entities.errors import AlreadyExists
from oncebus.protocols.http import Limits, Refused
from oncebus.protocols.http.errors import answer
from oncebus.values.errors import OncebusError
from tests.protocols.http.http_front import BATCH, Front, Shared, scenario

NO_ROOM = "The server is busy: there is no room on its disk. Please retry the operation later."
GUID = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (AccessRefused(Reason.MISSING, "no"), 401, "no"),
        (NotFound("q"), 404, "SubCode=40400. The messaging entity 'q' could not be found."),
        (AlreadyExists("q"), 409, "SubCode=40900. The messaging entity 'q' already exists."),
        (EntityDisabled("q"), 403, "SubCode=40300. Messaging entity 'q' is currently disabled."),
        (QuotaExceeded("full"), 403, "SubCode=40300. full"),
        (ServerBusy("busy"), 503, "busy"),
        (BrokerClosed(), 503, "The server is shutting down. Please retry the operation later."),
        (ClockLeapt("leapt"), 503, "leapt"),
        (
            InboxFull("/var/x"),
            503,
            "The server is busy: there is no room on its disk. Please retry the operation later.",
        ),
        (
            StoreFull("/var/x"),
            503,
            "The server is busy: there is no room on its disk. Please retry the operation later.",
        ),
        (MessageTooLarge("large"), 413, "SubCode=40000. large"),
        (BadRequest("<a> & \x00\ud800"), 400, "SubCode=40000. <a> & \ufffd\ufffd"),
        (EncodeError("x"), 400, "x"),
        (Refused(418, "tea"), 418, "tea"),
        (OncebusError("/var/x"), 500, "The service was unable to process the request; please retry the operation."),
        (KeyError("x"), 500, "The service was unable to process the request; please retry the operation."),
    ],
)
def test_errors_have_a_status_and_a_text(error: Exception, status: int, detail: str) -> None:
    response = answer(error)
    document = ElementTree.fromstring(bytes(response.body))
    assert [(each.tag, each.text) for each in document] == [("Code", str(status)), ("Detail", detail)]
    assert (response.status_code, document.tag) == (status, "Error")
    assert response.headers["content-type"] == "application/xml; charset=utf-8"
    assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.parametrize(
    ("method", "path", "query", "status", "text"),
    [
        ("POST", "/nothing/messages", "", 404, "The messaging entity 'nothing' could not be found."),
        ("POST", "/nothing/messages/head", "", 404, "The messaging entity 'nothing' could not be found."),
        ("DELETE", f"/nothing/messages/1/{GUID}", "", 404, "The messaging entity 'nothing' could not be found."),
        ("GET", "/nothing/$duplicates", "", 404, "The messaging entity 'nothing' could not be found."),
        ("GET", "/$quarantine", "entity=nothing", 404, "The messaging entity 'nothing' could not be found."),
        ("POST", "/news/Subscriptions/nobody/messages/head", "", 404, "could not be found."),
        ("POST", "/news/Subscriptions/all/messages", "", 400, "Messages are sent to the topic 'news', not to its"),
        ("POST", "/news/messages/head", "", 400, "Messages are received from a subscription of the topic 'news'"),
        ("POST", "/", "", 404, "There is no operation at the path ''."),
        ("GET", "/orders", "", 404, "There is no operation at the path 'orders'."),
        ("GET", "/orders/messages", "", 405, "The method 'GET' is not allowed here."),
        ("GET", "/orders/messages/head", "", 405, "The method 'GET' is not allowed here."),
        ("PATCH", f"/orders/messages/1/{GUID}", "", 405, "The method 'PATCH' is not allowed here."),
        ("POST", "/metrics", "", 405, "The method 'POST' is not allowed here."),
        ("POST", "/health", "", 405, "The method 'POST' is not allowed here."),
        ("DELETE", f"/orders/messages/1/{GUID}", "", 404, "The lock supplied is invalid."),
        ("POST", f"/orders/messages/1/{GUID}", "", 404, "The lock supplied is invalid."),
        ("DELETE", "/orders/messages/1/token", "", 400, "The lock token 'token' is not a GUID."),
        ("POST", "/orders/messages/head", "timeout=x", 400, "The parameter 'timeout' has value 'x'."),
        ("POST", "/orders/messages/head", "timeout=-1", 400, "The parameter 'timeout' has value '-1'."),
        ("POST", "/orders/messages/head", "timeout=nan", 400, "The parameter 'timeout' has value 'nan'."),
        (
            "POST",
            "/orders/messages/head",
            "timeout=1&timeout=2",
            400,
            "'timeout' is given more than once.",
        ),
        (
            "GET",
            "/orders/$duplicates",
            "limit=0",
            400,
            "'limit' has value '0'. Not a number from 1 to 1000.",
        ),
        ("GET", "/orders/$duplicates", "limit=1001", 400, "The parameter 'limit' has value '1001'."),
        ("GET", "/orders/$duplicates", "after=-1", 400, "The parameter 'after' has value '-1'."),
        ("GET", "/orders/$duplicates", "after=9223372036854775808", 400, "The parameter 'after' has value"),
        ("GET", "/orders/$duplicates", "since=yesterday", 400, "The parameter 'since' has value 'yesterday'."),
        ("GET", "/orders/$duplicates", "message-id=%ff", 400, "The query of the request is not url-encoded UTF-8."),
        (
            "GET",
            "/orders/$DeadLetterQueue/$duplicates",
            "",
            400,
            "the dead letters of 'orders' have no record of drops.",
        ),
        ("POST", "/%ff/messages", "", 400, "The path segment '%ff' is not UTF-8."),
    ],
)
def test_impossible_requests_are_rejected(
    shared: Shared, method: str, path: str, query: str, status: int, text: str
) -> None:
    async def play(front: Front) -> None:
        refused = await front.ask(method, path, b"x", query=query)
        assert refused.status == status
        detail = ElementTree.fromstring(refused.body).findtext("Detail")
        assert detail is not None
        assert text in detail
        assert ("allow" in refused.headers) == (status == 405)

    shared(play)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("{", "The header 'BrokerProperties' is not JSON: "),
        ("[1]", "BrokerProperties has value [1]. Not a JSON object."),
        ('{"MessageId": 5}', "The BrokerProperties field 'MessageId' has value 5. Not a text."),
        (
            '{"Label": "\\ud800"}',
            "The BrokerProperties field 'Label' has value '\\ud800'. It contains half",
        ),
        ('{"MessageId": "\\ud800"}', "surrogate"),
        ('{"TimeToLive": "90"}', "The BrokerProperties field 'TimeToLive' has value '90'. Not a number of seconds"),
        ('{"TimeToLive": 0}', "The BrokerProperties field 'TimeToLive' has value 0."),
        ('{"TimeToLive": true}', "The BrokerProperties field 'TimeToLive' has value True."),
        ('{"TimeToLive": NaN}', "NaN is not a number"),
        ('{"TimeToLive": ' + "9" * 5000 + "}", "is not JSON"),
        ('{"TimeToLiveTimeSpan": "soon"}', "The value 'soon' of the property 'TimeToLiveTimeSpan' is not a duration."),
        ('{"TimeToLiveTimeSpan": "-00:00:01"}', "Not a duration above 0."),
        (
            '{"ScheduledEnqueueTimeUtc": "soon"}',
            "field 'ScheduledEnqueueTimeUtc' has value 'soon'.",
        ),
        ('{"ScheduledEnqueueTimeUtc": 5}', "The BrokerProperties field 'ScheduledEnqueueTimeUtc' has value 5."),
        ("[" * 9000, "cannot be read: it is nested deeper than 64 levels."),
        ("ÿ", "The header 'BrokerProperties' is not JSON: "),
    ],
)
def test_broker_properties_that_cannot_be_read_name_the_field_and_the_value(
    shared: Shared, given: str, text: str
) -> None:
    async def play(front: Front) -> None:
        before = await front.broker.counts("orders")
        refused = await front.send("orders", b"x", {"BrokerProperties": given})
        assert refused.status == 400
        assert text in (ElementTree.fromstring(refused.body).findtext("Detail") or "")
        assert await front.broker.counts("orders") == before

    shared(play)


GOOD = {"Body": "fine"}


@pytest.mark.parametrize(
    ("items", "status", "text"),
    [
        ("{", 400, "The body of the batch is not JSON: "),
        ("\ud800", 400, "The body of the batch is not JSON: "),
        ({}, 400, "The body of the batch has value {}. Not a JSON array of messages."),
        ([], 400, "The batch of messages is empty."),
        ([GOOD, 5], 400, "The message 2 of the batch has value 5. Not a JSON object."),
        ([GOOD, {"Body": 5}], 400, "The Body of message 2 of the batch has value 5. Not a text."),
        (
            [GOOD, {"Body": "ü", "IsBodyBase64": True}],
            400,
            "Body of message 2 of the batch has value 'ü'. Not base64.",
        ),
        ([GOOD, {"IsBodyBase64": "yes"}], 400, "The IsBodyBase64 of message 2 of the batch has value 'yes'."),
        ([GOOD, {"BrokerProperties": {"MessageId": 5}}], 400, "message 2 of the batch: field 'MessageId' has value 5."),
        ([GOOD, {"BrokerProperties": {"MessageId": "x" * 129}}], 400, "The argument 'MessageId' cannot exceed 128"),
        ([GOOD, {"UserProperties": {"a": [1]}}], 400, "The property 'a' of message 2 of the batch has value [1]."),
        ([GOOD, {"UserProperties": {"a": 2**63}}], 400, "It exceeds 64 bits."),
        ([GOOD, {"UserProperties": 5}], 400, "The UserProperties of message 2 of the batch has value 5."),
        ([GOOD] * 21, 400, "The batch holds 21 messages, 20 is the limit."),
        ([GOOD, {"Body": "x" * 300_000}], 413, "exceeds the limit (262144)"),
        ([{"Body": "x" * 140_000}] * 2, 413, "The received batch of messages (size:"),
        ([{"Body": "x" * (1 << 20)}], 413, "exceeds the limit (1048576) currently allowed."),
        ([0] * 100_000, 400, "The body of the batch cannot be read: it has more than 100,000 values."),
    ],
)
def test_a_batch_with_one_bad_message_is_rejected_as_a_whole(
    shared: Shared, items: object, status: int, text: str
) -> None:
    async def play(front: Front) -> None:
        before = await front.broker.counts("orders")
        body = items.encode("utf-8", "replace") if isinstance(items, str) else json.dumps(items).encode()
        refused = await front.ask("POST", "/orders/messages", body, {"Content-Type": f"{BATCH}; charset=utf-8"})
        assert refused.status == status
        assert text in (ElementTree.fromstring(refused.body).findtext("Detail") or "")
        assert await front.broker.counts("orders") == before

    shared(play)


def test_a_batch_that_is_too_large_for_its_entity_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def encode(properties: amqp.Properties, own: Any, content: bytes) -> tuple[bytes, bytes]:
        encoded.append(len(content))
        return amqp_encode(properties, own, content)

    amqp_encode = amqp.encode_message
    monkeypatch.setattr("oncebus.protocols.http.broker_properties.amqp.encode_message", encode)

    async def play(front: Front) -> None:
        await front.queue()
        headers = {"Content-Type": BATCH}
        # It has 256 KB for its messages. Names and escapes take room too, but not that much.
        large = json.dumps([{"Body": "x" * 200_000}] * 20).encode()
        refused = await front.ask("POST", "/orders/messages", large, headers)
        assert (refused.status, encoded) == (413, [])
        # Here the length tells nothing. The messages that follow are not encoded.
        smaller = json.dumps([{"Body": "x" * 140_000}] * 15).encode()
        refused = await front.ask("POST", "/orders/messages", smaller, headers)
        assert (refused.status, encoded) == (413, [140_000] * 2)

    scenario(tmp_path, play, limits=Limits())


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([(b"a", b"1"), (b"A", b"2")], "The property 'A' is given more than once."),
        ([(b"brokerproperties", b"{}")] * 2, "The header 'BrokerProperties' is given more than once."),
        ([(b"a", rb'"\ud800"')], "It contains half of a surrogate pair."),
        ([(b"content-type", "ö".encode("latin-1"))], "is not ASCII."),
        ([(b"a", b"x" * 70_000)], "The size of the request headers is too long."),
    ],
)
def test_invalid_headers_are_rejected(shared: Shared, headers: list[tuple[bytes, bytes]], text: str) -> None:
    async def play(front: Front) -> None:
        before = await front.broker.counts("orders")
        refused = await front.ask("POST", "/orders/messages", b"x", headers)
        assert refused.status == 400
        assert text in (ElementTree.fromstring(refused.body).findtext("Detail") or "")
        assert await front.broker.counts("orders") == before

    shared(play)


def test_a_body_that_does_not_arrive_times_out(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        refused = await front.ask("POST", "/orders/messages", chunks=[b"x", b"y"], stalls=True)
        assert refused.status == 408
        assert refused.headers["connection"] == "close"

    scenario(tmp_path, play, limits=Limits(body_seconds=0.01))
