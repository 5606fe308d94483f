"""Peeking at messages, sending them, and their fates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.scenes import message
from httpfront.http_front import LISTENER, SENDER, Front
from oncebus.broker.addresses import Address
from oncebus.broker.sending import Incoming
from oncebus.entities import Rule, SqlFilter, Subscription
from oncebus.portal import drops, messages, quarantine
from oncebus.portal.links import link
from oncebus.store import Action, Settlement

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
        lambda catalogue, now: catalogue.created(Subscription(topic="news", name="some"), now, rules)
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
        page = words(await visitor.get("entity/messages", path="q"))
        for text in (
            "id-1 greeting",
            "Number 1",
            "Enqueued 2026-09-21 14:13:20.000 UTC",
            "State Active",
            "Deliveries 0",
            "Session s1",
            "Expires 2026-09-21 15:13:20.000 UTC",
            "colour red",
            "Body, 5 bytes hello",
        ):
            assert text in page
        # Peeking does not receive the message.
        assert (await front.broker.counts("q")).active == 1

    visit(tmp_path, play)


def test_what_senders_write_never_runs(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        sent = message(NASTY, NASTY.encode(), {NASTY: NASTY}, subject=NASTY, session=NASTY, correlation_id=NASTY)
        await front.broker.send("q", [sent, sent])
        pages = [
            await visitor.get("entity/messages", path="q"),
            await visitor.get("entity/drops", path="q"),
            await visitor.get("entity/drops", path="q", message_id=NASTY),
            await visitor.get("entity/drops", path="q", message_id=f"{NASTY}not"),
            await visitor.post("entity/send", {"path": "q", "message-id": NASTY, "body": NASTY, "label": NASTY}),
            await visitor.get("entity/messages", path="q", of="dead-letters"),
        ]
        await dead_letter(front, "q", reason=NASTY, description=NASTY)
        pages.append(await visitor.get("entity/messages", path="q", of="dead-letters"))
        await quarantine_some(front, 1)
        pages.append(await visitor.get("quarantine"))
        for page in pages:
            assert page.status_code == 200
            assert "<script>" not in page.text
        assert [NASTY in shown(page) for page in pages] == [True] * 5 + [False] + [True] * 2
        errors = await visitor.post("entity/send", {"path": "q", "properties": NASTY, "body": NASTY})
        assert (errors.status_code, "<script>" in errors.text) == (400, False)

    visit(tmp_path, play)


def test_messages_come_in_pages(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        await visitor.front.broker.send("q", [message(f"id-{number}.") for number in range(messages.PAGE + 5)])
        page = await visitor.get("entity/messages", path="q")
        assert (page.text.count("id-"), "id-19." in page.text) == (messages.PAGE, True)
        following = await visitor.client.get(f"/$portal/entity/messages?path=q&of=messages&from={messages.PAGE + 1}")
        assert f"from={messages.PAGE + 1}" in page.text
        assert (following.text.count("id-"), "id-20." in following.text) == (5, True)
        assert "Next" not in words(following)

    visit(tmp_path, play)


def test_a_page_shows_few_large_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 400_000)

    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        for number in range(5):
            await visitor.front.broker.send("q", [message(f"id-{number}.", b"x" * 150_000)])
        page = await visitor.get("entity/messages", path="q")
        assert [number for number in range(5) if f"id-{number}." in page.text] == [0, 1, 2]
        assert "from=4" in page.text
        assert "150,000 bytes" in words(page)

    visit(tmp_path, play)


def test_only_entities_that_hold_messages_have_a_page_of_messages(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "all")
        await visitor.front.broker.send("news", [message("1")])
        assert (await visitor.get("entity/messages", path="news")).status_code == 400
        page = await visitor.get("entity/messages", path="news/Subscriptions/all")
        assert "Number 1" in words(page)
        assert (await visitor.get("entity/drops", path="news/Subscriptions/all")).status_code == 400
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
        assert "Reason Bad" in words(page)
        assert "Description Of no use." in words(page)
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
        async with asyncio.timeout(20):
            while not (await front.broker.counts("q")).transfer_dead_letter:
                await asyncio.sleep(0.01)
        page = words(await visitor.get("entity/messages", path="q", of="transfer-dead-letters"))
        assert "astray" in page
        assert "Choose" not in page

    visit(tmp_path, play)


def test_messages_are_purged_after_confirmation(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q")
        await front.broker.send("q", [message(f"id {at}") for at in range(30)])
        page = await visitor.get("entity/messages", path="q")
        assert "Purge" in words(page)
        await visitor.post("entity/purge", {"path": "q", "of": "messages"})
        assert "Nothing was deleted. Check the box" in words(await visitor.get("entity/messages", path="q"))
        (held,) = await front.broker.receive(Address("q"), 1)
        await visitor.post("entity/purge", {"path": "q", "of": "messages", "sure": "on"})
        text = words(await visitor.get("entity/messages", path="q"))
        assert "29 messages deleted. 1 are left: locked, deferred, scheduled, or new." in text
        assert held.message.message_id in text
        answer = await visitor.post("entity/purge", {"path": "q", "of": "elsewhere", "sure": "on"})
        assert answer.status_code == 400
        assert "Not one of messages, dead-letters" in words(answer)

    visit(tmp_path, play)


# Drops


def test_the_record_shows_which_message_won(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        await front.broker.send("q", [message("first"), message("same")])
        front.time.advance(60)
        await front.broker.send("q", [message("same")])
        page = await visitor.get("entity/drops", path="q", message_id="same")
        text = words(page)
        assert "Yes: same was dropped." in text
        assert "same 2026-09-21 14:14:20.000 UTC 3 2 2026-09-21 14:13:20.000 UTC" in text
        assert "/$portal/entity/messages?path=q&amp;from=2" in page.text
        text = words(await visitor.get("entity/drops", path="q", message_id="first"))
        assert "No drop of first is on record." in text
        await front.queue("plain")
        text = words(await visitor.get("entity/drops", path="plain", message_id="x"))
        assert "No: duplicates are not detected here" in text

    visit(tmp_path, play)


def test_an_id_is_forgotten_after_confirmation(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True, enable_partitioning=True)
        await front.broker.send("q", [message(NASTY, session="s")])
        page = await visitor.get("entity/drops", path="q", message_id=NASTY)
        assert "Let this id be sent again" in words(page)
        assert "Forgotten ids" not in words(page)
        fields = {"path": "q", "message-id": NASTY, "session-id": "s"}
        asked = await visitor.post("entity/forget", fields)
        assert asked.headers["location"] == link("entity/drops", path="q", message_id=NASTY)
        assert "Nothing was forgotten. Check the box" in words(await visitor.get("entity/drops", path="q"))
        assert await front.broker.forgets("q") == []
        await visitor.post("entity/forget", fields | {"sure": "on"})
        text = words(await visitor.get("entity/drops", path="q"))
        assert "The id is forgotten. It was remembered from message" in text
        assert f"Forgotten ids MessageId Forgotten at Number of the original Accepted at {NASTY}" in text
        await visitor.post("entity/forget", fields | {"sure": "on"})
        assert "was not remembered" in words(await visitor.get("entity/drops", path="q"))
        await front.broker.send("q", [message(NASTY, session="s")])
        assert (await front.broker.counts("q")).duplicates == 0

    visit(tmp_path, play)


def test_drops_come_newest_first_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drops, "PAGE", 3)

    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        ids = [f"id-{number}." for number in range(8)]
        await front.broker.send("q", [message(each) for each in (*ids, *ids)])

        async def listed(**query: Any) -> list[str]:
            text = (await visitor.get("entity/drops", path="q", **query)).text
            return sorted((each for each in ids if each in text), key=text.index)

        assert await listed() == ["id-7.", "id-6.", "id-5."]
        assert await listed(before=6) == ["id-4.", "id-3.", "id-2."]
        assert await listed(before=3) == ["id-1.", "id-0."]
        assert await listed(before=1) == []
        assert "Earlier" in words(await visitor.get("entity/drops", path="q", before=6))
        assert "Earlier" not in words(await visitor.get("entity/drops", path="q", before=3))
        for _ in range(5):
            await front.broker.send("q", [message("id-0.")])
        page = await visitor.get("entity/drops", path="q", message_id="id-0.")
        assert (page.text.count("<tr>"), "Later" in words(page)) == (4, True)
        page = await visitor.get("entity/drops", path="q", message_id="id-0.", after=10)
        assert (page.text.count("<tr>"), "Later" in words(page)) == (4, False)

    visit(tmp_path, play)


def test_a_topic_has_a_record_too(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "all", requires_duplicate_detection=True)
        await visitor.front.broker.send("news", [message("same"), message("same")])
        assert "Yes: same was dropped." in words(await visitor.get("entity/drops", path="news", message_id="same"))

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
        assert (first.status_code, "Accepted as number 1 . It was not a duplicate." in words(first)) == (200, True)
        front.time.advance(1)
        second = words(await visitor.post("entity/send", fields))
        assert "Accepted as number 2 . It was dropped as a duplicate of number 1 , accepted at" in second
        assert "42 is remembered for 10 minutes." in second
        [received] = await front.broker.peek(Address("q"), 0, 10)
        assert (received.message.session, received.message.message_id) == ("s", "42")
        page = await visitor.get("entity/messages", path="q")
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
            assert "Accepted as number" in shown_text
            assert "duplicate" not in shown_text.partition("Accepted as number")[2].partition("MessageId")[0]

    visit(tmp_path, play)


def test_a_slow_pipeline_is_shown(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True)
        shown_text = words(await visitor.post("entity/send", {"path": "q", "message-id": "1"}))
        assert "Accepted as number 1 . It is still in the pipeline." in shown_text

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
            assert f"Accepted as number {number} . Send a test" not in shown_text
            assert f"Accepted as number {number} ." in shown_text
            assert "dropped as a duplicate" not in shown_text

    visit(tmp_path, play, rule=SENDER)


# Quarantine


def test_quarantined_messages_are_released_or_discarded(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await quarantine_some(front, 4)
        numbers = [row.number for row in await front.broker.quarantined()]
        page = await visitor.get("quarantine", path="news")
        assert page.text.count("id-") == 4
        assert "Reason DecodeError" in words(page)
        both: Fields = {"path": "news", "number": [str(number) for number in numbers[:2]]}
        page = await visitor.new("quarantine", {**both, "action": "discard"})
        assert "Check the box to confirm" in words(page)
        assert len(await front.broker.quarantined()) == 4
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
        numbers = [row.number for row in await visitor.front.broker.quarantined()]
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
        assert ("one" in words(page), "Choose" in words(page)) == (True, False)
        assert (await visitor.post("entity/resubmit", {"path": "q", "number": "1"})).status_code == 403
        assert (await visitor.front.broker.counts("q")).dead_letter == 1

    visit(tmp_path, play, rule=LISTENER)
