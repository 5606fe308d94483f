"""Raw management requests and responses."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from oncebus.model.entities import Rule, SqlFilter, Tier
from tests.protocols.atom.admin import (
    ATOM,
    COUNTS,
    SERVICE_BUS,
    VERSION,
    Admin,
    described,
    description,
    elements,
    links,
    refusal,
    titles,
)
from tests.protocols.http.http_front import HOST, Front, scenario


def test_an_entity_is_created_changed_and_deleted(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        made = await admin.create("a/b", LockDuration="PT30S", UserMetadata="for <you> & me")
        assert (made.status, made.headers["content-type"]) == (201, "application/atom+xml;type=entry;charset=utf-8")
        assert described(made)["UserMetadata"] == "for <you> & me"
        root = ElementTree.fromstring(made.body)
        assert root.findtext(f"{{{ATOM}}}title") == "a/b"
        assert root.findtext(f"{{{ATOM}}}id") == f"http://{HOST}/a/b?{VERSION}"
        assert root.findtext(f"{{{ATOM}}}author/{{{ATOM}}}name") == "oncebus"
        assert refusal(await admin.create("A/B")) == (409, "SubCode=40900. The messaging entity 'A/B' already exists.")
        front.time.advance(10)
        changed = await admin.update("a%2FB", LockDuration="PT45S")
        assert (changed.status, described(changed)["LockDuration"]) == (200, "PT45S")
        assert changed.headers["etag"] != made.headers["etag"]
        # A text that is not named is removed; everything else stays as it was.
        assert "UserMetadata" not in described(changed)
        assert described(changed)["CreatedAt"] == described(made)["CreatedAt"] < described(changed)["UpdatedAt"]
        gone = await admin.delete("a/b")
        assert (gone.status, gone.body) == (200, b"")
        assert titles(await admin.get("a/b")) == []
        for missing in (await admin.delete("a/b"), await admin.update("a/b")):
            assert refusal(missing) == (404, "SubCode=40400. The messaging entity 'a/b' could not be found.")

    scenario(tmp_path, play)


def test_an_update_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        rules = (
            '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
            "<Rights><AccessRights>Send</AccessRights></Rights><KeyName>sender</KeyName></AuthorizationRule>"
            "</AuthorizationRules>"
        )
        given = {
            "RequiresDuplicateDetection": True,
            "DuplicateDetectionHistoryTimeWindow": "P2D",
            "RequiresSession": True,
        }
        await admin.create("orders", "Queue", rules, **given, MaxDeliveryCount=3)
        await admin.update("orders", MaxDeliveryCount=4)
        queue = front.broker.catalogue.queue("orders")
        assert (queue.requires_duplicate_detection, queue.requires_session, queue.max_delivery_count) == (True, True, 4)
        assert queue.duplicate_detection_history_time_window == 2 * 86400 * 1_000_000
        (rule,) = queue.authorization_rules
        # A rule without keys keeps its keys; an empty list removes the rule.
        await admin.update("orders", "Queue", rules.replace("<AccessRights>Send", "<AccessRights>Listen"))
        (changed,) = front.broker.catalogue.queue("orders").authorization_rules
        assert (changed.primary_key, changed.secondary_key) == (rule.primary_key, rule.secondary_key)
        assert [str(right) for right in changed.rights] == ["Listen"]
        await admin.update("orders", "Queue", "<AuthorizationRules/>")
        assert front.broker.catalogue.queue("orders").authorization_rules == ()

    scenario(tmp_path, play)


def test_an_update_may_be_meant_for_one_state_only(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        first = (await admin.create("orders")).headers["etag"]
        body = description("QueueDescription", elements(MaxDeliveryCount=5))
        again = await admin.put("orders", body, {"If-Match": first})
        assert again.status == 200
        second = again.headers["etag"]
        assert (await admin.get("orders")).headers["etag"] == second
        for stale in (
            await admin.put("orders", body, {"If-Match": first}),
            await admin.delete("orders", {"If-Match": first}),
        ):
            assert refusal(stale) == (
                412,
                f"The entity 'orders' has changed in the meantime: its ETag is {second}, but If-Match is {first}.",
            )
        # Messages do not change the ETag of an entity.
        await front.send("orders")
        await front.broker.counts("orders")
        assert (await admin.get("orders")).headers["etag"] == second
        assert (await admin.delete("orders", {"If-Match": f'"other", W/{second}'})).status == 200

    scenario(tmp_path, play)


def test_rules_have_tags_too(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin, path = Admin(front), "news/Subscriptions/all/Rules/$Default"
        await front.topic("news", "all")
        tag = (await admin.get(path)).headers["etag"]
        body = description("RuleDescription", '<Filter i:type="FalseFilter"/>')
        assert (await admin.put(path, body, {"If-Match": tag})).status == 200
        assert (await admin.put(path, body, {"If-Match": tag})).status == 412
        assert (await admin.delete(path, {"If-Match": tag})).status == 412
        assert (await admin.delete(path)).status == 200
        assert refusal(await admin.delete(path))[0] == 404

    scenario(tmp_path, play)


def test_lists_come_in_pages_that_link_to_the_next(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        for name in ("e", "c", "a", "d", "b"):
            await front.queue(name)
        assert titles(await admin.get("$Resources/queues")) == ["a", "b", "c", "d", "e"]
        page = await admin.get("$resources/Queues", f"{VERSION}&$skip=0&$top=2")
        found = titles(page)
        relations = [links(page)]
        while len(links(page)) == 2:
            # The Python client takes the second link.
            following = urlsplit(links(page)[1][1])
            page = await front.ask("GET", following.path, query=following.query)
            found += titles(page)
            relations.append(links(page))
        assert found == ["a", "b", "c", "d", "e"]
        assert [[name for name, _ in each] for each in relations] == [["self", "next"], ["self", "next"], ["self"]]
        assert titles(await admin.get("$Resources/queues", f"{VERSION}&$skip=9")) == []
        assert titles(await admin.get("$Resources/topics")) == []
        for query, text in (
            ("$skip=-1", "The parameter '$skip' has value '-1'."),
            ("$top=0", "The parameter '$top' has value '0'."),
            ("$top=many", "The parameter '$top' has value 'many'."),
            ("$filter=x", "The parameter '$filter' is not supported."),
        ):
            status, detail = refusal(await admin.get("$Resources/queues", f"{VERSION}&{query}"))
            assert status == 400
            assert text in detail

    scenario(tmp_path, play)


def test_subscriptions_and_rules_are_listed_below_their_owner(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        await front.topic("a/news", "one", "two")
        assert titles(await admin.get("a/news/subscriptions")) == ["one", "two"]
        assert titles(await admin.get("a%2Fnews/Subscriptions/one/Rules")) == ["$Default"]
        page = await admin.get("a/news/Subscriptions", f"{VERSION}&$top=1")
        assert titles(page) == ["one"]
        entry = ElementTree.fromstring(page.body).find(f"{{{ATOM}}}entry")
        assert entry is not None
        # Clients look for these words to find the names.
        assert entry.findtext(f"{{{ATOM}}}id") == f"http://{HOST}/a/news/Subscriptions/one?{VERSION}"
        assert titles(await admin.get("none/subscriptions")) == []
        for missing in ("a/news/subscriptions/none/rules", "a/news/subscriptions/one/rules/none"):
            assert refusal(await admin.get(missing))[0] == 404

    scenario(tmp_path, play)


def test_a_description_includes_the_counts(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        await front.queue("orders")
        await front.topic("news", "all")
        front.time.advance(60)
        await front.send("orders", b"12345")
        await front.send("orders", b"later", ScheduledEnqueueTimeUtc="Sun, 06 Nov 2050 08:49:37 GMT")
        await front.send("news", b"x")
        await front.send("news", b"x", ScheduledEnqueueTimeUtc="Sun, 06 Nov 2050 08:49:37 GMT")
        answer = await admin.get("orders")
        found = described(answer)
        assert (found["MessageCount"], int(found["SizeInBytes"]) > 10) == ("2", True)
        assert found["CreatedAt"] < found["AccessedAt"]
        assert counts(answer.body) == {
            "ActiveMessageCount": "1",
            "DeadLetterMessageCount": "0",
            "ScheduledMessageCount": "1",
            "TransferMessageCount": "0",
            "TransferDeadLetterMessageCount": "0",
        }
        topic = await admin.get("news", "api-version=2024-05")
        assert counts(topic.body)["ScheduledMessageCount"] == "1"
        assert (described(topic)["SubscriptionCount"], described(topic)["SqlFilterCount"]) == ("1", "1")
        assert int(described(topic)["SizeInBytes"]) > 0
        subscription = await admin.get("news/Subscriptions/all")
        assert described(subscription)["MessageCount"] == counts(subscription.body)["ActiveMessageCount"] == "1"

    scenario(tmp_path, play)


def counts(body: bytes) -> dict[str, str]:
    details = ElementTree.fromstring(body).find(f".//{{{SERVICE_BUS}}}CountDetails")
    assert details is not None
    return {each.tag.removeprefix(COUNTS): each.text or "" for each in details}


@pytest.mark.parametrize("tier", list(Tier))
def test_the_namespace_has_a_name_and_a_tier(tmp_path: Path, tier: Tier) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        found = described(await admin.get("$namespaceinfo"))
        assert (found["Name"], found["MessagingSKU"], found["NamespaceType"]) == ("oncebus", tier.value, "Messaging")
        assert found.get("MessagingUnits") == ("1" if tier is Tier.PREMIUM else None)
        created = front.time.now
        await front.queue()
        front.time.advance(60)
        await admin.update("orders", MaxDeliveryCount=3)
        times = described(await admin.get("$NamespaceInfo"))
        queue = front.broker.catalogue.queue("orders")
        assert queue.created_at == created
        assert (times["CreatedTime"], times["ModifiedTime"]) == (
            described(await admin.get("orders"))["CreatedAt"],
            described(await admin.get("orders"))["UpdatedAt"],
        )

    scenario(tmp_path, play, tier=tier)


def test_a_subscription_may_be_created_with_its_first_rule(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.topic("news")
        rule = (
            '<DefaultRuleDescription><Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>'
            '<Action i:type="EmptyRuleAction"/><Name>first</Name></DefaultRuleDescription>'
        )
        assert (await Admin(front).create("news/subscriptions/some", "Subscription", rule)).status == 201
        (found,) = front.broker.catalogue.subscription("news", "some").rules
        assert (found.name, found.filter) == ("first", SqlFilter("a = 1"))
        assert (await Admin(front).create("news/subscriptions/all", "Subscription")).status == 201
        assert [each.name for each in front.broker.catalogue.subscription("news", "all").rules] == [Rule().name]

    scenario(tmp_path, play)
