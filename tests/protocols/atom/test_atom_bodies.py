"""The bodies of management requests: valid ones, and invalid ones with the reason."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.protocols.atom.admin import (
    ATOM,
    SERVICE_BUS,
    VERSION,
    Admin,
    described,
    description,
    elements,
    refusal,
    titles,
)
from tests.protocols.http.http_front import Front, Shared, scenario

SQL = "http://www.w3.org/2001/XMLSchema"


def test_a_rule_with_an_invalid_expression_is_rejected(tmp_path: Path) -> None:
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
            ('<Filter i:type="SqlFilter"><Sql>a = 1</Sql></Filter>', "The element 'Sql' is not allowed in a Filter."),
            ("<Filters/>", "The element 'Filters' is not allowed in a RuleDescription."),
            (
                '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>n</Key>'
                f'<Value i:type="x:int" xmlns:x="{SQL}">five</Value></KeyValueOfstringanyType></Properties></Filter>',
                "The value of 'n' is 'five'. It must have the type int.",
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
        (
            b"<?run this?><entry/>",
            "The body of the request has the processing instruction 'run', which is not allowed.",
        ),
        (b'<?xml version="1.0" encoding="klingon"?><entry/>', "The body of the request is not XML: "),
        (b'<?xml version="1.0" encoding="utf-32"?><entry/>', "The body of the request is not XML: "),
        (b"<a>" * 30 + b"</a>" * 30, "The elements of the request's body are nested more than 20 deep."),
        (b"<a>" + b"<b/>" * 20_000 + b"</a>", "The body of the request has more than 20000 elements and attributes."),
        (b"<entry/>", "The body of the request is the element 'entry'. Not an entry of 'http://www.w3.org/2005/Atom'."),
        (b'<feed xmlns="http://www.w3.org/2005/Atom"/>', "The body of the request is the element 'feed'."),
        (b'<entry xmlns="http://www.w3.org/2005/Atom"/>', "The entry must have one content element"),
        (
            description("EventHubDescription"),
            "The content is the element 'EventHubDescription'. Not one of QueueDescription",
        ),
        (
            description("QueueDescription").replace(b"servicebus/connect", b"other"),
            f"The element 'QueueDescription' is not in the XML namespace '{SERVICE_BUS}'.",
        ),
        (description("RuleDescription"), "The content for 'thing' is a 'RuleDescription'. Not a QueueDescription or a"),
        (
            description("QueueDescription", "<LockDuraton>PT1M</LockDuraton>"),
            "The element 'LockDuraton' is not allowed in a",
        ),
        (description("QueueDescription", elements(LockDuration="PT1M") * 2), "'LockDuration' occurs more than once."),
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
            "The element 'Rule' is not allowed among the authorization rules.",
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
def test_bodies_without_a_description_are_rejected_with_the_reason(shared: Shared, body: bytes, text: str) -> None:
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
            "The body of the request exceeds the limit of 1048576 bytes.",
        )
        piecemeal = await front.ask("PUT", "/thing", query=VERSION, chunks=[bytes(1 << 19)] * 3)
        assert refusal(piecemeal)[0] == 413

    scenario(tmp_path, play)


def test_elements_may_come_in_any_order_and_read_only_ones_are_ignored(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        admin = Admin(front)
        made = await admin.create("orders", RequiresSession=True, MaxDeliveryCount=7)
        # Some clients send back everything that they read.
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
