"""Peeking at messages, sending them, and their fates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker import looking
from oncebus.broker.addresses import Address
from oncebus.broker.sending import Incoming
from oncebus.engine.store import Action, Settlement, SubQueue
from oncebus.model.entities import Rule, SqlFilter, Subscription
from oncebus.protocols.portal import message_actions, messages, quarantine
from tests.broker.scenes import message
from tests.protocols.http.http_front import LISTENER, SENDER, Front

from .visitor import Fields, Visitor, shown, visit, words

NASTY = "<script>alert(1)</script>"


async def dead_letter(front: Front, path: str, *, reason: str = "Bad", description: str = "Of no use.") -> None:
    """Dead-letter all messages of an entity."""
    await front.broker.counts(path)
    for received in await front.broker.receive(Address(path), 100):
        token = received.message.token
        assert token is not None
        settlement = Settlement(Action.DEAD_LETTER, token, reason=reason, description=description)
        await front.broker.settle(Address(path), [settlement])


async def quarantine_some(front: Front, count: int) -> None:
    """Quarantine messages: a subscription's filter needs properties, and these messages have unreadable ones."""
    await front.topic("news")
    rules = [Rule("x", SqlFilter("x = 1"))]
    await front.broker.change(
        lambda catalogue, now: catalogue.create(Subscription(topic="news", name="some"), now, rules)
    )
    broken = b"\x00\x53\x73\xd0\x00"
    await front.broker.send("news", [Incoming(broken, b"", f"id-{number} {NASTY}") for number in range(count)])
    await front.broker.counts("news")


# Peeking


def test_messages_are_shown_with_all_their_properties(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_session=True)
        sent = message("id-1", b"hello", {"colour": "red"}, subject="greeting", session="s1", ttl=3_600_000_000)
        await front.broker.send("q", [sent])
        front.time.advance(90)
        page = await visitor.get("entity/messages", path="q")
        assert "id-1 greeting 1 Active hello 1 min 30 s ago 0" in words(page)
        assert 'title="2026-09-21 14:13:20.000 UTC"' in page.text
        assert "colour" not in words(page)
        details = words(await visitor.get("entity/messages", path="q", show=1))
        for text in (
            "MessageId id-1",
            "SequenceNumber 1",
            "EnqueuedTime 2026-09-21 14:13:20.000 UTC",
            "State Active",
            "DeliveryCount 0",
            "SessionId s1",
            "ExpiresAt 2026-09-21 15:13:20.000 UTC , after 1 h",
            "Label greeting",
            "Application properties colour red",
            "Body, 5 bytes hello",
        ):
            assert text in details
        gone = words(await visitor.get("entity/messages", path="q", show=7))
        assert "Message 7 is no longer here" in gone
        # Peeking does not receive the message.
        assert (await front.broker.counts("q")).active == 1

    visit(tmp_path, play)


def test_a_dead_letter_is_not_called_active(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        await visitor.front.broker.send("q", [message("x")])
        await dead_letter(visitor.front, "q")
        assert "q Dead letters 1 just now" in words(await visitor.get("search", message_id="x"))
        details = words(await visitor.get("entity/messages", path="q", of="dead-letters", show=1))
        assert ("DeliveryCount" in details, "State" in details) == (True, False)

    visit(tmp_path, play)


def test_what_senders_write_never_runs(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        sent = message(NASTY, NASTY.encode(), {NASTY: NASTY}, subject=NASTY, session=NASTY, correlation_id=NASTY)
        await front.broker.send("q", [sent, sent])
        pages = [
            await visitor.get("entity/messages", path="q", show=1),
            await visitor.get("entity/duplicates", path="q"),
            await visitor.get("entity/duplicates", path="q", message_id=NASTY),
            await visitor.get("entity/duplicates", path="q", message_id=f"{NASTY}not"),
            await visitor.post("entity/send", {"path": "q", "message-id": NASTY, "body": NASTY, "label": NASTY}),
            await visitor.get("entity/messages", path="q", of="dead-letters"),
        ]
        await dead_letter(front, "q", reason=NASTY, description=NASTY)
        pages.append(await visitor.get("entity/messages", path="q", of="dead-letters", show=1))
        await quarantine_some(front, 1)
        pages.append(await visitor.get("quarantine"))
        pages.append(await visitor.get("search", message_id=NASTY))
        pages.append(await visitor.get("duplicates"))
        for page in pages:
            assert page.status_code == 200
            assert "<script>" not in page.text
        assert [NASTY in shown(page) for page in pages] == [True] * 5 + [False] + [True] * 4
        errors = await visitor.post("entity/send", {"path": "q", "properties": NASTY, "body": NASTY})
        assert (errors.status_code, "<script>" in errors.text) == (400, False)

    visit(tmp_path, play)


def test_messages_come_in_pages(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        await visitor.front.broker.send("q", [message(f"id-{number}.") for number in range(messages.PAGE + 5)])
        page = await visitor.get("entity/messages", path="q")
        assert (page.text.count("id-"), f"id-{messages.PAGE - 1}." in page.text) == (messages.PAGE, True)
        assert f"from={messages.PAGE + 1}" in page.text
        later: dict[str, Any] = {"from": messages.PAGE + 1}
        following = await visitor.get("entity/messages", path="q", **later)
        assert (following.text.count("id-"), f"id-{messages.PAGE}." in following.text) == (5, True)
        assert "Next" not in words(following)
        later["from"] = 99
        assert "There are none from number 99 on." in words(await visitor.get("entity/messages", path="q", **later))

    visit(tmp_path, play)


def test_a_page_shows_few_large_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 400_000)

    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        for number in range(5):
            await visitor.front.broker.send("q", [message(f"id-{number}.", b"x" * 150_000)])
        page = await visitor.get("entity/messages", path="q")
        assert [number for number in range(5) if f"id-{number}." in page.text] == [0, 1]
        assert "from=3" in page.text
        assert "146.5 KB" in words(page)

    visit(tmp_path, play)


def test_only_entities_that_hold_messages_have_a_page_of_messages(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "all")
        await visitor.front.broker.send("news", [message("1")])
        assert (await visitor.get("entity/messages", path="news")).status_code == 400
        page = await visitor.get("entity/messages", path="news/Subscriptions/all")
        assert "Choose number 1" in page.text
        assert (await visitor.get("entity/duplicates", path="news/Subscriptions/all")).status_code == 400
        assert (await visitor.get("entity/send", path="news/Subscriptions/all")).status_code == 400

    visit(tmp_path, play)


# Dead letters


def test_a_dead_letter_is_resubmitted_past_detection(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        await front.broker.send("q", [message("one"), message("two")])
        await dead_letter(front, "q")
        page = await visitor.get("entity/messages", path="q", of="dead-letters")
        assert "one 1 Bad empty" in words(page)
        page = await visitor.get("entity/messages", path="q", of="dead-letters", show=1)
        assert "DeadLetterReason Bad DeadLetterErrorDescription Of no use. DeadLetterSource q" in words(page)
        page = await visitor.new("entity/resubmit", {"path": "q", "number": ["1"]})
        assert "1 dead letter resubmitted." in words(page)
        assert "two" in words(page)
        active = await front.broker.peek(Address("q"), 0, 10)
        assert [each.message.message_id for each in active] == ["one"]
        counts = await front.broker.counts("q")
        assert (counts.active, counts.dead_letter, counts.duplicates) == (1, 1, 0)
        page = await visitor.new("entity/resubmit", {"path": "q", "number": ["1", "2"]})
        assert (
            "1 dead letter resubmitted. 1 could not be resubmitted: a receiver holds them, or they are gone."
            in words(page)
        )
        assert "Nothing was chosen." in words(await visitor.new("entity/resubmit", {"path": "q"}))
        assert (await visitor.post("entity/resubmit", {"path": "q", "number": "x"})).status_code == 400

    visit(tmp_path, play)


def test_messages_that_could_not_be_forwarded_are_shown(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("target", requires_session=True)
        await front.queue("q", forward_to="target")
        await front.broker.send("q", [message("astray")])
        async with asyncio.timeout(60):
            while not (await front.broker.counts("q")).transfer_dead_letter:
                await asyncio.sleep(0.01)
        page = words(await visitor.get("entity/messages", path="q", of="transfer-dead-letters"))
        assert "astray" in page
        assert "Resubmit" not in page
        assert "Could not be forwarded 1" in page

    visit(tmp_path, play)


def test_dead_letters_are_discarded_once_that_is_confirmed(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q")
        await front.broker.send("q", [message("one"), message("two")])
        await dead_letter(front, "q")
        chosen: Fields = {"path": "q", "of": "dead-letters", "number": ["1", "2"]}
        page = await visitor.post("entity/discard", chosen)
        assert "Discard 2 dead letters of 'q'? This cannot be undone." in words(page)
        assert (await front.broker.counts("q")).dead_letter == 2
        page = await visitor.new("entity/discard", {**chosen, "number": ["2"], "sure": "yes"})
        assert "1 dead letter discarded." in words(page)
        left = await front.broker.peek(Address("q", SubQueue.DEAD_LETTER), 0, 10)
        assert [each.message.message_id for each in left] == ["one"]
        page = await visitor.new("entity/discard", {**chosen, "number": ["2"], "sure": "yes"})
        assert "0 dead letters discarded. 1 could not be discarded" in words(page)
        assert "Nothing was chosen." in words(await visitor.new("entity/discard", {"path": "q"}))
        # Messages that are not dead letters belong to the receivers.
        await front.broker.send("q", [message("three")])
        answer = await visitor.post("entity/discard", {"path": "q", "of": "messages", "number": "3", "sure": "yes"})
        assert answer.status_code == 400
        assert (await front.broker.counts("q")).active == 1
        too_many = [str(number) for number in range(messages.PAGE + 1)]
        assert (await visitor.post("entity/discard", {**chosen, "number": too_many})).status_code == 400

    visit(tmp_path, play)


def test_chosen_messages_are_downloaded(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("a/b")
        await front.broker.send("a/b", [message("one", b"hello", {"colour": "red"}), message("two", b"\xff\x00")])
        answer = await visitor.post("entity/download", {"path": "a/b", "number": ["1", "2", "9"]})
        assert answer.headers["content-disposition"] == 'attachment; filename="a-b-messages.json"'
        document = answer.json()
        first, second = document["messages"]
        assert (first["Body"], first["UserProperties"]) == ("hello", {"colour": "red"})
        assert first["BrokerProperties"]["MessageId"] == "one"
        assert (second["Body"], second["IsBodyBase64"]) == ("/wA=", True)
        assert (document["entity"], document["leftOut"]) == ("a/b", 1)
        page = await visitor.new("entity/download", {"path": "a/b"})
        assert message_actions.NOTHING in words(page)

    visit(tmp_path, play)


def test_messages_are_found_by_id_and_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q")
        sent = [message(f"id-{number}.", session=f"s{number % 2}") for number in range(6)]
        await front.broker.send("q", sent)

        async def listed(**query: Any) -> list[str]:
            text = words(await visitor.get("entity/messages", path="q", **query))
            return [f"id-{number}." for number in range(6) if f"id-{number}." in text]

        assert await listed(message_id="id-3.") == ["id-3."]
        assert await listed(session="s1") == ["id-1.", "id-3.", "id-5."]
        assert await listed(session="s1", **{"from": 3}) == ["id-3.", "id-5."]
        assert await listed(message_id="id-3.", session="s0") == []
        assert "No message matches." in words(await visitor.get("entity/messages", path="q", message_id="none"))
        monkeypatch.setattr(looking, "READ_AT_ONCE", 2)
        monkeypatch.setattr(looking, "MOST_READ", 4)
        page = await visitor.get("entity/messages", path="q", message_id="id-5.")
        assert "Search on" in words(page)
        assert "from=5" in page.text
        assert await listed(message_id="id-5.", **{"from": 5}) == ["id-5."]

    visit(tmp_path, play)


def test_messages_are_purged_after_confirmation(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q")
        await front.broker.send("q", [message(f"id {at}") for at in range(30)])
        page = await visitor.get("entity/messages", path="q")
        assert "Purge all…" in words(page)
        page = await visitor.post("entity/purge", {"path": "q", "of": "messages"})
        assert "Purge all messages of 'q'?" in words(page)
        assert (await front.broker.counts("q")).active == 30
        (held,) = await front.broker.receive(Address("q"), 1)
        await visitor.post("entity/purge", {"path": "q", "of": "messages", "sure": "yes"})
        text = words(await visitor.get("entity/messages", path="q"))
        assert "29 messages deleted. 1 are left: locked, deferred, scheduled, or new." in text
        assert held.message.message_id in text
        answer = await visitor.post("entity/purge", {"path": "q", "of": "elsewhere", "sure": "yes"})
        assert answer.status_code == 400
        assert "Not one of messages, dead-letters" in words(answer)

    visit(tmp_path, play)


# Sending


def test_a_message_sent_twice_is_shown_as_a_duplicate(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        fields = {
            "path": "q",
            "message-id": "42",
            "session": "s",
            "label": "greeting",
            "body": "hello\r\nworld",
            "content-type": "text/plain",
            "properties": 'colour: red\r\nsize: 3\r\nname: "3"',
        }
        first = await visitor.post("entity/send", fields)
        assert (first.status_code, "Sent as number 1 . It was not a duplicate." in words(first)) == (200, True)
        front.time.advance(1)
        second = words(await visitor.post("entity/send", fields))
        assert "Sent as number 2 . It was dropped as a duplicate of number 1 , sent at" in second
        assert "Its id is remembered until 2026-09-21 14:23:20.000 UTC ." in second
        await front.broker.change(
            lambda catalogue, now: catalogue.update(replace(catalogue.queue("q"), max_delivery_count=3), now)
        )
        third = words(await visitor.post("entity/send", fields))
        assert ("It was dropped" in third, "remembered until" in third) == (True, False)
        [received] = await front.broker.peek(Address("q"), 0, 10)
        assert (received.message.session, received.message.message_id) == ("s", "42")
        page = await visitor.get("entity/messages", path="q", show=1)
        assert "hello\nworld" in shown(page)
        for text in ("Label greeting", "ContentType text/plain", "colour red", "size 3", "name 3"):
            assert text in words(page)
        # The form keeps its values, so that the message can be sent again.
        assert 'value="42"' in first.text
        assert "hello\nworld</textarea>" in first.text

    visit(tmp_path, play)


def test_without_detection_or_an_id_there_is_no_verdict(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("plain")
        await visitor.front.queue("q", requires_duplicate_detection=True)
        for path, identity in (("plain", "1"), ("plain", "1"), ("q", "")):
            shown_text = words(await visitor.post("entity/send", {"path": path, "message-id": identity, "body": ""}))
            assert "Sent as number" in shown_text
            assert "duplicate" not in shown_text.partition("Sent as number")[2].partition("MessageId")[0]

    visit(tmp_path, play)


def test_a_slow_pipeline_is_shown(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True)
        shown_text = words(await visitor.post("entity/send", {"path": "q", "message-id": "1"}))
        assert "Sent as number 1 . It is still in the pipeline." in shown_text

    visit(tmp_path, play, pipeline=False, read_your_sends=0)


def test_the_error_of_a_message_is_at_its_field(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str], str, str]] = [
        ({"session": ""}, "session", "The SessionId was not set on a message"),
        ({"message-id": "x" * 129}, "message-id", "The argument 'MessageId' cannot exceed 128 characters."),
        ({"properties": "no colon"}, "properties", "The line 'no colon' is not a property."),
        ({"properties": "a: 1\na: 2"}, "properties", "The property 'a' is given more than once."),
        ({"partition-key": "p"}, "partition-key", "PartitionKey:p cannot be set to a different value"),
    ]

    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_session=True, enable_partitioning=True)
        for fields, name, expected in cases:
            answer = await visitor.post("entity/send", {"path": "q", "body": "kept", "session": "s", **fields})
            assert (answer.status_code, f'id="{name}-error"' in answer.text) == (400, True), name
            assert expected in words(answer)
            assert "kept</textarea>" in answer.text

    visit(tmp_path, play, pipeline=False, read_your_sends=0)


def test_with_send_alone_only_the_acceptance_is_shown(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True)
        for number in (1, 2):
            shown_text = words(await visitor.post("entity/send", {"path": "q", "message-id": "same"}))
            assert f"Sent as number {number} . Send a test" not in shown_text
            assert f"Sent as number {number} ." in shown_text
            assert "dropped as a duplicate" not in shown_text

    visit(tmp_path, play, rule=SENDER)


# Quarantine


def test_quarantined_messages_are_released_or_discarded(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await quarantine_some(front, 4)
        numbers = [row.number for row in await front.broker.quarantine.page()]
        page = await visitor.get("quarantine", path="news")
        assert page.text.count("id-") == 4
        assert "DecodeError" in words(page)
        both: Fields = {"path": "news", "number": [str(number) for number in numbers[:2]]}
        page = await visitor.post("quarantine", {**both, "action": "discard"})
        assert "Discard 2 messages from quarantine? This cannot be undone." in words(page)
        assert len(await front.broker.quarantine.page()) == 4
        page = await visitor.new("quarantine", {**both, "action": "discard", "sure": "on"})
        assert "2 messages discarded." in words(page)
        page = await visitor.new("quarantine", {**both, "action": "discard", "sure": "on"})
        assert "0 messages discarded. 2 were no longer there." in words(page)
        await front.broker.change(lambda catalogue, _: catalogue.delete_rule("news", "some", "x"))
        await front.broker.change(lambda catalogue, now: catalogue.create_rule("news", "some", Rule("all"), now))
        page = await visitor.new("quarantine", {"number": [str(number) for number in numbers[2:]], "action": "release"})
        assert "2 messages released." in words(page)
        assert "Nothing is in quarantine." in words(page)
        assert "Nothing was chosen." in words(await visitor.new("quarantine", {"action": "release"}))
        assert (await visitor.post("quarantine", {"action": "eat"})).status_code == 400

    visit(tmp_path, play)


def test_the_quarantine_comes_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "PAGE", 2)

    async def play(visitor: Visitor) -> None:
        await quarantine_some(visitor.front, 3)
        numbers = [row.number for row in await visitor.front.broker.quarantine.page()]
        found = await visitor.get("search", message_id=f"id-0 {NASTY}")
        assert "In quarantine, sent to: news" in words(found)
        page = await visitor.get("quarantine")
        assert (page.text.count("id-"), f"after={numbers[1]}" in page.text) == (2, True)
        page = await visitor.get("quarantine", after=numbers[1])
        assert (page.text.count("id-"), "Later" in words(page)) == (1, False)

    visit(tmp_path, play)


def test_with_listen_alone_resubmitting_is_rejected(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        await visitor.front.broker.send("q", [message("one")])
        await dead_letter(visitor.front, "q")
        page = await visitor.get("entity/messages", path="q", of="dead-letters")
        assert ("one" in words(page), "Resubmit" in words(page), "Discard" in words(page)) == (True, False, True)
        assert (await visitor.post("entity/resubmit", {"path": "q", "number": "1"})).status_code == 403
        assert (await visitor.front.broker.counts("q")).dead_letter == 1

    visit(tmp_path, play, rule=LISTENER)
