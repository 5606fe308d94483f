"""Routing of management requests: versions, methods, and names that look like something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncebus.model.entities import Subscription
from tests.protocols.atom.admin import (
    VERSION,
    Admin,
    described,
    description,
    elements,
    refusal,
    titles,
)
from tests.protocols.http.http_front import SENDER, Front, Shared, scenario, token


def test_unknown_versions_are_rejected(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        await front.queue()
        await admin.create("news", "Topic")
        for version in ("2017-04", "2021-05", "2024-05"):
            found = described(await admin.get("orders", f"api-version={version}"))
            assert ("MaxMessageSizeInKilobytes" in found) == (version != "2017-04")
            topic = described(await admin.get("news", f"api-version={version}"))
            is_there = version == "2024-05"
            assert ("SqlFilterCount" in topic, "CorrelationFilterCount" in topic) == (is_there, is_there)
        for version in ("2015-01", "", "latest"):
            assert refusal(await admin.get("orders", f"api-version={version}")) == (
                400,
                f"SubCode=40000. The api-version '{version}' is not supported. Use one of 2017-04, 2021-05, 2024-05.",
            )
        body = description("QueueDescription", elements(MaxMessageSizeInKilobytes=256))
        refused = await front.ask("PUT", "/other", body, query="api-version=2017-04")
        assert "'MaxMessageSizeInKilobytes' does not exist in the api-version 2017-04." in refusal(refused)[1]
        assert "api-version" in refusal(await admin.get("orders", ""))[1]

    scenario(tmp_path, play)


def test_the_root_needs_no_version_and_lists_no_entities(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        for query, given in (("", None), ("", ""), (VERSION, "")):
            answer = await front.ask("GET", "/", query=query, token=given)
            assert titles(answer) == []
            assert '<title type="text">Publicly Listed Services</title>' in answer.text
        assert (await front.ask("PUT", "/", b"")).status == 404

    scenario(tmp_path, play)


@pytest.mark.parametrize("name", ["metrics", "health", "messages", "a/messages", "a/messages/head/c/d", "$duplicates"])
def test_an_entity_named_like_an_operation_can_be_managed(tmp_path: Path, name: str) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        made = await admin.create(name)
        if name == "$duplicates":
            assert "contains character(s) that is not allowed" in refusal(made)[1]
            return
        assert made.status == 201
        assert titles(await admin.get("$Resources/queues")) == [name]
        assert described(await admin.get(name))["MaxDeliveryCount"] == "10"
        assert (await admin.update(name, MaxDeliveryCount=3)).status == 200
        assert (await front.send(name, b"x")).status == 201
        assert (await front.take(name)).body == b"x"
        assert (await admin.delete(name)).status == 200
        assert (await front.ask("GET", "/metrics")).text.startswith("# ")
        assert (await front.ask("GET", "/health", token=None)).json["status"] == "healthy"
        assert (await front.ask("GET", "/health", query=VERSION, token=None)).status == 401

    scenario(tmp_path, play)


def test_operations_on_messages_win_over_entities_with_their_names(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        await front.queue("orders")
        await front.queue("orders/messages/head")
        assert (await front.ask("DELETE", "/orders/messages/head", query=f"{VERSION}&timeout=0")).status == 204
        assert front.broker.catalogue.find("orders/messages/head") is not None
        assert described(await admin.get("orders/messages/head"))["LockDuration"] == "PT1M"

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "orders", "GET, PUT, DELETE"),
        ("PATCH", "news/subscriptions/all/rules/x", "GET, PUT, DELETE"),
        ("PUT", "$Resources/queues", "GET"),
        ("DELETE", "$namespaceinfo", "GET"),
        ("PUT", "news/subscriptions", "GET"),
    ],
)
def test_other_methods_are_refused(shared: Shared, method: str, path: str, allowed: str) -> None:
    async def play(front: Front) -> None:
        refused = await front.ask(method, f"/{path}", query=VERSION)
        assert refusal(refused) == (405, f"The method '{method}' is not allowed here.")
        assert refused.headers["allow"] == allowed

    shared(play)


@pytest.mark.parametrize(
    "path", ["$Resources/rules", "$Resources", "t/subscriptions/s/other", "t/subscriptions/s/rules/r/x"]
)
def test_unknown_paths_are_not_found(shared: Shared, path: str) -> None:
    async def play(front: Front) -> None:
        assert refusal(await Admin(front).get(path))[0] == 404

    shared(play)


def test_names_that_look_like_the_words_of_a_path(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        for path, kind in (
            ("subscriptions", "Topic"),
            ("subscriptions/subscriptions/subscriptions", "Subscription"),
            ("subscriptions/subscriptions/rules", "Subscription"),
            ("subscriptions/subscriptions/rules/rules/rules", "Rule"),
            ("rules/x", "Queue"),
        ):
            assert (await admin.create(path, kind)).status == 201, path
        found = front.broker.catalogue.subscription("subscriptions", "rules")
        assert isinstance(found, Subscription)
        assert [rule.name for rule in found.rules] == ["$Default", "rules"]
        assert titles(await admin.get("subscriptions/subscriptions")) == ["rules", "subscriptions"]

    scenario(tmp_path, play)


def test_rules_of_a_subscription_named_like_an_operation(shared: Shared) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        at = "news/Subscriptions/messages"
        assert (await admin.create(at, "Subscription")).status == 201
        rule = '<Filter i:type="FalseFilter"/>'
        assert (await admin.create(f"{at}/Rules/r", "Rule", rule)).status == 201
        assert (await admin.delete(f"{at}/Rules/r")).status == 200
        assert (await admin.delete(at)).status == 200

    shared(play)


@pytest.mark.parametrize("path", ["orders/$DeadLetterQueue", "orders/$Transfer/$deadletterqueue"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_sub_queue_has_no_description(shared: Shared, method: str, path: str) -> None:
    async def play(front: Front) -> None:
        body = description("QueueDescription")
        assert refusal(await front.ask(method, f"/{path}", body, query=VERSION))[0] == 400

    shared(play)


def test_a_path_that_names_nothing_is_an_empty_feed_for_any_token(shared: Shared) -> None:
    async def play(front: Front) -> None:
        for path in ("nothing", "nothing/subscriptions", "nothing/subscriptions/all"):
            assert titles(await Admin(front).get(path, token=token(front.time, SENDER))) == []

    shared(play)


def test_errors_end_with_the_id_and_the_place_of_the_request(shared: Shared) -> None:
    async def play(front: Front) -> None:
        refused = await Admin(front).get("orders/$DeadLetterQueue")
        ends = r" TrackingId:[0-9a-f-]{36}, SystemTracker:[a-z.]+:orders/\$DeadLetterQueue, Timestamp:[-0-9T:]+<"
        assert re.search(ends, refused.text)

    shared(play)


def test_forward_targets_keep_their_scheme(shared: Shared) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        for scheme in ("https", "sb"):
            target = f"{scheme}://bus.example.org/orders"
            made = await admin.create(f"to-{scheme}", ForwardTo=target, ForwardDeadLetteredMessagesTo=target)
            assert described(made)["ForwardTo"] == target
            assert described(await admin.get(f"to-{scheme}"))["ForwardDeadLetteredMessagesTo"] == target

    shared(play)
