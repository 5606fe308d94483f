"""Rejected requests for resources, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocols.arm.resource_requests import NAMESPACE, SCOPE, VERSION, Manager, refusal
from tests.protocols.http.http_front import Answer, Front, scenario


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"{", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"<a/>", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"\xff", "InvalidRequestContent", "The body of the request is not JSON: "),
        (b"[" * 100_000, "InvalidRequestContent", "The body of the request is not JSON: "),
        (b'{"properties": NaN}', "InvalidRequestContent", "The body of the request is not JSON: "),
        (
            b'{"properties": {"userMetadata": "\\ud800"}}',
            "InvalidRequestContent",
            "it contains an invalid text or number",
        ),
        (b"[]", "InvalidRequestContent", "The body of the request is []. Not an object."),
        (b'{"properties": 5}', "InvalidRequestContent", "The member 'properties' is 5. Not an object."),
        (
            b'{"lockDuration": "PT1M"}',
            "BadRequest",
            "The member 'lockDuration' is not known. Properties of an entity belong",
        ),
        (b'{"properties": {"lockDuraton": "PT1M"}}', "BadRequest", "The property 'lockDuraton' is not known."),
        (
            b'{"properties": {"lockDuration": 60}}',
            "BadRequest",
            "The property 'lockDuration' has value 60. Not a duration.",
        ),
        (
            b'{"properties": {"requiresSession": "true"}}',
            "BadRequest",
            "'requiresSession' has value 'true'. Not true or false.",
        ),
        (
            b'{"properties": {"maxDeliveryCount": true}}',
            "BadRequest",
            "'maxDeliveryCount' has value True. Not a whole number.",
        ),
        (
            b'{"properties": {"maxDeliveryCount": 1.5}}',
            "BadRequest",
            "'maxDeliveryCount' has value 1.5. Not a whole number.",
        ),
        (b'{"properties": {"forwardTo": ["a"]}}', "BadRequest", "'forwardTo' has value ['a']. Not a text."),
        (
            b'{"properties": {"status": "x", "Status": "y"}}',
            "BadRequest",
            "The property 'Status' is given more than once.",
        ),
    ],
)
def test_invalid_bodies_are_rejected_with_the_reason(tmp_path: Path, body: bytes, code: str, text: str) -> None:
    async def play(front: Front) -> None:
        answer = refusal(await front.ask("PUT", f"{NAMESPACE}/queues/thing", body, query=VERSION))
        assert answer[:2] == (400, code)
        assert text in answer[2]
        assert front.broker.catalogue.entities == {}

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"filterType": "OtherFilter"}, "The property 'filterType' has value 'OtherFilter'."),
        ({"sqlFilter": {}, "correlationFilter": {}}, "A rule has a 'sqlFilter' or a 'correlationFilter', not both."),
        ({"sqlFilter": {"sqlExpression": "a = "}}, "The filter cannot be read"),
        ({"sqlFilter": {"sqlExpression": 5}}, "The property 'sqlExpression' has value 5. Not a text."),
        ({"sqlFilter": {"sql": "a = 1"}}, "The property 'sql' is not known."),
        ({"sqlFilter": {"compatibilityLevel": "20"}}, "'compatibilityLevel' has value '20'. Not a whole number."),
        ({"action": {"requiresPreprocessing": 1}}, "'requiresPreprocessing' has value 1. Not true or false."),
        ({"correlationFilter": {"properties": []}}, "The property 'properties' is []. Not an object."),
        ({"correlationFilter": {"properties": {"a": [1]}}}, "The value of 'a' is [1]. Not a text, a number,"),
        ({"correlationFilter": {"properties": {"a": 10**30}}}, "The value of 'a' is 1000000000000000000000000000000."),
        ({"correlationFilter": {"label": 5}}, "The property 'Label' has value 5. Not a text."),
    ],
)
def test_invalid_rules_are_rejected(tmp_path: Path, properties: dict[str, object], text: str) -> None:
    async def play(front: Front) -> None:
        await front.topic("news", "all")
        path = "/topics/news/subscriptions/all/rules/mine"
        status, _, message = await Manager(front).refused("PUT", path, {"properties": properties})
        assert status == 400
        assert text in message

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MissingApiVersionParameter"),
        ("api-version=", "MissingApiVersionParameter"),
        ("api-version=2021-05", "InvalidApiVersionParameter"),
        ("api-version=latest", "InvalidApiVersionParameter"),
    ],
)
def test_a_version_must_be_named(tmp_path: Path, query: str, code: str) -> None:
    async def play(front: Front) -> None:
        assert (await Manager(front).refused("GET", "", query=query))[:2] == (400, code)
        for version in ("2026-01-01", "2024-01-01", "2022-01-01-preview", "2017-04-01"):
            assert (await Manager(front).ask("GET", "", query=f"API-Version={version}")).status == 200

    scenario(tmp_path, play, pipeline=False)


@pytest.mark.parametrize(
    "path",
    [
        "/providers/Microsoft.ServiceBus/operations",
        f"{SCOPE}/namespaces/oncebus/eventhubs/x",
        f"{SCOPE}/namespaces/oncebus/metrics/default",
        f"{SCOPE}/namespaces/oncebus/topics/t/subscriptions/s/other",
        f"{SCOPE}/namespaces/oncebus/topics/t/subscriptions/s/rules/r/x",
        f"{SCOPE}/namespaces/oncebus/authorizationRules/x/other",
        "/subscriptions/s/providers/Microsoft.ServiceBus/namespaces/oncebus",
    ],
)
def test_unknown_paths_are_not_found(tmp_path: Path, path: str) -> None:
    async def play(front: Front) -> None:
        assert refusal(await front.ask("GET", path, query=VERSION))[:2] == (404, "ResourceNotFound")

    scenario(tmp_path, play, pipeline=False)


def test_other_methods_and_bodies_too_large_are_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        refused: Answer = await Manager(front).ask("PATCH", "/queues/x", {})
        assert (refusal(refused)[0], refused.headers["allow"]) == (405, "GET, PUT, DELETE")
        large = await Manager(front).ask("PUT", "/queues/x", {"properties": {"userMetadata": "x" * (1 << 20)}})
        assert refusal(large)[:2] == (413, "RequestEntityTooLarge")

    scenario(tmp_path, play, pipeline=False)


def test_a_queue_that_takes_the_name_of_a_topic_is_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.topic("news")
        assert await Manager(front).refused("PUT", "/queues/news", {}) == (
            409,
            "Conflict",
            "SubCode=40900. The messaging entity 'news' already exists.",
        )
        assert (await Manager(front).refused("GET", "/queues/news"))[0] == 404

    scenario(tmp_path, play, pipeline=False)
