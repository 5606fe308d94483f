"""Management requests and answers as they stand on the wire."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from atom.admin import (
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
from httpfront.http_front import HOST, Front, Shared, scenario
from oncebus.entities import Rule, SqlFilter, Subscription, Tier

SQL = "http://www.w3.org/2001/XMLSchema"


def test_an_entity_is_made_changed_and_deleted(tmp_path: Path) -> None:
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
        # A text is taken away by not naming it; all else stays as it was.
        assert "UserMetadata" not in described(changed)
        assert described(changed)["CreatedAt"] == described(made)["CreatedAt"] < described(changed)["UpdatedAt"]
        gone = await admin.delete("a/b")
        assert (gone.status, gone.body) == (200, b"")
        for missing in (await admin.get("a/b"), await admin.delete("a/b"), await admin.update("a/b")):
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
        # The same rule without its keys keeps them; none at all takes it away.
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
                f"The entity 'orders' was changed since: its ETag is {second}, but If-Match is {first}.",
            )
        # What an entity holds is no change of it.
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
            # The second link, as the Python client takes it.
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
        # Clients find names in it, by these words.
        assert entry.findtext(f"{{{ATOM}}}id") == f"http://{HOST}/a/news/Subscriptions/one?{VERSION}"
        for missing in ("none/subscriptions", "a/news/subscriptions/none/rules", "a/news/subscriptions/one/rules/none"):
            assert refusal(await admin.get(missing))[0] == 404

    scenario(tmp_path, play)


def test_what_an_entity_holds_is_told_with_it(tmp_path: Path) -> None:
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
        topic = await admin.get("news")
        assert counts(topic.body)["ScheduledMessageCount"] == "1"
        assert (described(topic)["SubscriptionCount"], described(topic)["SqlFilterCount"]) == ("1", "0")
        assert int(described(topic)["SizeInBytes"]) > 0
        subscription = await admin.get("news/Subscriptions/all")
        assert described(subscription)["MessageCount"] == counts(subscription.body)["ActiveMessageCount"] == "1"

    scenario(tmp_path, play)


def counts(body: bytes) -> dict[str, str]:
    details = ElementTree.fromstring(body).find(f".//{{{SERVICE_BUS}}}CountDetails")
    assert details is not None
    return {each.tag.removeprefix(COUNTS): each.text or "" for each in details}


@pytest.mark.parametrize("tier", list(Tier))
def test_the_namespace_tells_its_name_and_tier(tmp_path: Path, tier: Tier) -> None:
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


def test_a_subscription_may_be_made_with_its_first_rule(tmp_path: Path) -> None:
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


def test_a_rule_whose_text_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin, path = Admin(front), "news/subscriptions/all/rules/bad"
        await front.topic("news", "all")
        for content, text in (
            ('<Filter i:type="SqlFilter"><SqlExpression>a = </SqlExpression></Filter>', "The filter cannot be read"),
            (
                '<Filter i:type="SqlFilter"><SqlExpression>a = @b</SqlExpression></Filter>',
                "the parameter '@b', which has no",
            ),
            ('<Filter i:type="SqlFilter"/>', "The argument 'sqlExpression' is null or white space."),
            ('<Filter i:type="OtherFilter"/>', "The filter has type 'OtherFilter'. Not one of SqlFilter,"),
            ("<Filter/>", "The filter has type None."),
            ('<Action i:type="SqlRuleAction"><SqlExpression>SET</SqlExpression></Action>', "The action cannot be read"),
            ('<Action i:type="OtherAction"/>', "The action has type 'OtherAction'."),
            ('<Filter i:type="SqlFilter"><Sql>a = 1</Sql></Filter>', "The element 'Sql' is not known in a Filter."),
            ("<Filters/>", "The element 'Filters' is not known in a RuleDescription."),
            (
                '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>n</Key>'
                f'<Value i:type="x:int" xmlns:x="{SQL}">five</Value></KeyValueOfstringanyType></Properties></Filter>',
                "The value of 'n' is 'five'. Not of the type int.",
            ),
            (
                '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>n</Key>'
                '<Value i:type="array">1</Value></KeyValueOfstringanyType></Properties></Filter>',
                "The value of 'n' has the type 'array'. Not one of string, int,",
            ),
            (
                '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>n</Key>'
                "</KeyValueOfstringanyType></Properties></Filter>",
                "A KeyValueOfstringanyType needs a Key and a Value.",
            ),
        ):
            status, detail = refusal(await admin.create(path, "Rule", content))
            assert status == 400
            assert text in detail
        assert titles(await admin.get("news/subscriptions/all/rules")) == ["$Default"]

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The request has no body."),
        (b"  ", "The request has no body."),
        (b"{}", "The body of the request is not XML: not well-formed (invalid token), line 1, column 1."),
        (b"<entry>", "The body of the request is not XML: no element found, line 1, column 8."),
        (b"<!DOCTYPE entry><entry/>", "The body of the request has a document type, which is not allowed."),
        (
            b'<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;">]><entry>&y;</entry>',
            "The body of the request has a document type, which is not allowed.",
        ),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><entry/>', "The body of the request has a document type"),
        (b"<entry>&amp;&other;</entry>", "The body of the request is not XML: undefined entity"),
        (b"<?run this?><entry/>", "The body of the request has an instruction, 'run', which is not allowed."),
        (b'<?xml version="1.0" encoding="klingon"?><entry/>', "The body of the request is not XML: "),
        (b'<?xml version="1.0" encoding="utf-32"?><entry/>', "The body of the request is not XML: "),
        (b"<a>" * 30 + b"</a>" * 30, "The elements of the request's body are nested more than 20 deep."),
        (b"<a>" + b"<b/>" * 20_000 + b"</a>", "The body of the request has more than 20000 elements."),
        (b"<entry/>", "The body of the request is the element 'entry'. Not an entry of 'http://www.w3.org/2005/Atom'."),
        (b'<feed xmlns="http://www.w3.org/2005/Atom"/>', "The body of the request is the element 'feed'."),
        (b'<entry xmlns="http://www.w3.org/2005/Atom"/>', "The entry must have one content element"),
        (
            description("EventHubDescription"),
            "The content is the element 'EventHubDescription'. Not one of QueueDescription",
        ),
        (
            description("QueueDescription").replace(b"servicebus/connect", b"other"),
            f"The element 'QueueDescription' is not of the namespace '{SERVICE_BUS}'.",
        ),
        (description("RuleDescription"), "The content for 'thing' is a 'RuleDescription'. Not a QueueDescription or a"),
        (
            description("QueueDescription", "<LockDuraton>PT1M</LockDuraton>"),
            "The element 'LockDuraton' is not known in a",
        ),
        (description("QueueDescription", elements(LockDuration="PT1M") * 2), "'LockDuration' is given more than once."),
        (
            description("QueueDescription", "<LockDuration/>"),
            "The value '' of the property 'LockDuration' is not a duration.",
        ),
        (
            description("QueueDescription", elements(RequiresSession="maybe")),
            "The property 'RequiresSession' has value 'maybe'. Not true or false.",
        ),
        (
            description("QueueDescription", elements(MaxDeliveryCount="1.5")),
            "The property 'MaxDeliveryCount' has value '1.5'. Not a whole number.",
        ),
        (
            description("QueueDescription", "<AuthorizationRules><Rule/></AuthorizationRules>"),
            "The element 'Rule' is not known among the authorization rules.",
        ),
        (
            description(
                "QueueDescription",
                "<AuthorizationRules><AuthorizationRule><KeyName>k</KeyName><Rights><AccessRights>Own</AccessRights>"
                "</Rights></AuthorizationRule></AuthorizationRules>",
            ),
            "The access right 'Own' is not one of Send, Listen, Manage.",
        ),
        (
            description(
                "QueueDescription",
                "<AuthorizationRules><AuthorizationRule><KeyName>k</KeyName></AuthorizationRule></AuthorizationRules>",
            ),
            "Authorization rule 'k' has no rights.",
        ),
    ],
)
def test_bodies_that_are_no_description_are_refused_with_the_reason(shared: Shared, body: bytes, text: str) -> None:
    async def play(front: Front) -> None:
        before = front.broker.catalogue
        status, detail = refusal(await Admin(front).put("thing", body))
        assert status == 400
        assert text in detail
        assert front.broker.catalogue is before

    shared(play)


def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        refused = await Admin(front).create("thing", UserMetadata="x" * (1 << 20))
        assert refusal(refused) == (
            413,
            "The body of the request exceeds the limit of 1048576 bytes for a description.",
        )
        piecemeal = await front.ask("PUT", "/thing", query=VERSION, chunks=[bytes(1 << 19)] * 3)
        assert refusal(piecemeal)[0] == 413

    scenario(tmp_path, play)


def test_the_elements_of_a_description_may_come_in_any_order_and_some_are_read_over(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        made = await admin.create("orders", RequiresSession=True, MaxDeliveryCount=7)
        # As some clients send back all that they were told.
        root = ElementTree.fromstring(made.body)
        found = root.find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}QueueDescription")
        assert found is not None
        found[:] = reversed(found)
        for each in found:
            if each.tag == f"{{{SERVICE_BUS}}}MaxDeliveryCount":
                each.text = " 8 "
        nil = ElementTree.SubElement(found, f"{{{SERVICE_BUS}}}UserMetadata")
        nil.set("{http://www.w3.org/2001/XMLSchema-instance}nil", "true")
        again = await admin.put("orders", ElementTree.tostring(root, encoding="utf-16"), {"If-Match": "*"})
        assert described(again)["MaxDeliveryCount"] == "8"
        assert "UserMetadata" not in described(again)

    scenario(tmp_path, play)


def test_versions_that_are_not_known_are_refused(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        await front.queue()
        for version in ("2017-04", "2021-05", "2024-05"):
            found = described(await admin.get("orders", f"api-version={version}"))
            assert ("MaxMessageSizeInKilobytes" in found) == (version != "2017-04")
        for version in ("2015-01", "", "latest"):
            assert refusal(await admin.get("orders", f"api-version={version}")) == (
                400,
                f"SubCode=40000. The api-version '{version}' is not supported. There are 2017-04, 2021-05, 2024-05.",
            )
        body = description("QueueDescription", elements(MaxMessageSizeInKilobytes=256))
        refused = await front.ask("PUT", "/other", body, query="api-version=2017-04")
        assert "'MaxMessageSizeInKilobytes' is not known to the api-version 2017-04." in refusal(refused)[1]
        assert "api-version" in refusal(await admin.get("orders", ""))[1]

    scenario(tmp_path, play)


@pytest.mark.parametrize("name", ["metrics", "health", "messages", "a/messages", "a/messages/head/c/d", "$duplicates"])
def test_an_entity_named_like_an_operation_is_managed_all_the_same(tmp_path: Path, name: str) -> None:
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


def test_operations_on_messages_come_before_entities_of_such_a_name(tmp_path: Path) -> None:
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
def test_paths_that_lead_nowhere(shared: Shared, path: str) -> None:
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


def test_rules_of_a_subscription_that_is_called_like_an_operation(shared: Shared) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        at = "news/Subscriptions/messages"
        assert (await admin.create(at, "Subscription")).status == 201
        rule = '<Filter i:type="FalseFilter"/>'
        assert (await admin.create(f"{at}/Rules/r", "Rule", rule)).status == 201
        assert (await admin.delete(f"{at}/Rules/r")).status == 200
        assert (await admin.delete(at)).status == 200

    shared(play)
