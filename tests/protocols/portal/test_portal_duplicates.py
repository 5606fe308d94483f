"""The pages of dropped duplicates, and the search for a MessageId."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker import looking
from oncebus.broker.addresses import Address
from oncebus.engine.store import Duplicate, Mode
from oncebus.protocols.portal import duplicates
from oncebus.protocols.portal.duplicates import tally
from oncebus.protocols.portal.links import link
from oncebus.values.durations import MINUTE, SECOND
from tests.broker.scenes import message
from tests.protocols.http.http_front import LISTENER

from .visitor import Visitor, visit, words

NASTY = "<script>alert(1)</script>"


def test_the_record_shows_the_original_and_how_late_the_duplicate_was(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        await front.broker.send("q", [message("first"), message("same")])
        front.time.advance(90)
        await front.broker.send("q", [message("same")])
        front.time.advance(20)
        page = await visitor.get("entity/duplicates", path="q", message_id="same")
        text = words(page)
        assert "Yes: same was dropped 1 time." in text
        assert "same 20 s ago 1 min 30 s number 2 3" in text
        assert 'title="2026-09-21 14:14:50.000 UTC"' in page.text
        assert "/$portal/entity/messages?path=q&amp;from=2&amp;show=2" in page.text
        assert "already consumed" not in text
        await front.broker.receive(Address("q"), 2, mode=Mode.RECEIVE_AND_DELETE)
        page = await visitor.get("entity/duplicates", path="q")
        assert "same 20 s ago 1 min 30 s number 2 already consumed 3" in words(page)
        assert "entity/messages?path=q&amp;from=2" not in page.text
        text = words(await visitor.get("entity/duplicates", path="q", message_id="first"))
        assert "No drop of first is on record." in text
        await front.queue("plain")
        text = words(await visitor.get("entity/duplicates", path="plain", message_id="x"))
        assert "No: duplicates are not detected here" in text
        assert "Duplicates are not detected here" in words(await visitor.get("entity/duplicates", path="plain"))

    visit(tmp_path, play)


def test_duplicates_come_newest_first_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "PAGE", 3)
    monkeypatch.setattr(duplicates, "MOST_IDS", 0)

    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        ids = [f"id-{number}." for number in range(8)]
        await front.broker.send("q", [message(each) for each in (*ids, *ids)])

        async def listed(**query: Any) -> list[str]:
            text = (await visitor.get("entity/duplicates", path="q", **query)).text
            return sorted((each for each in ids if each in text), key=text.index)

        assert await listed() == ["id-7.", "id-6.", "id-5."]
        assert await listed(before=6) == ["id-4.", "id-3.", "id-2."]
        assert await listed(before=3) == ["id-1.", "id-0."]
        assert await listed(before=1) == []
        assert "Earlier" in words(await visitor.get("entity/duplicates", path="q", before=6))
        assert "Earlier" not in words(await visitor.get("entity/duplicates", path="q", before=3))
        for _ in range(5):
            await front.broker.send("q", [message("id-0.")])
        page = await visitor.get("entity/duplicates", path="q", message_id="id-0.")
        assert (page.text.count("<tr>"), "Later" in words(page)) == (4, True)
        page = await visitor.get("entity/duplicates", path="q", message_id="id-0.", after=10)
        assert (page.text.count("<tr>"), "Later" in words(page)) == (4, False)

    visit(tmp_path, play)


def test_a_range_shows_how_many_came_from_which_ids_and_how_late(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True, duplicate_detection_history_time_window=180 * MINUTE)
        await front.broker.send("q", [message("a"), message("b")])
        for seconds, again in ((10, "a"), (7000, "b"), (10, "b"), (10, "b")):
            front.time.advance(seconds)
            await front.broker.send("q", [message(again)])
        await visitor.sign_in()
        text = words(await visitor.get("entity/duplicates", path="q"))
        assert "In the last 24 hours 4 duplicates dropped" in text
        assert "Repeat most b 3 × a 1 ×" in text
        assert "At the latest 1 h 57 min" in text
        text = words(await visitor.get("entity/duplicates", path="q", range="10m"))
        assert "In the last 10 minutes 3 duplicates dropped" in text
        assert "Repeat most b 3 ×" in text
        assert (await visitor.get("entity/duplicates", path="q", range="1y")).status_code == 400
        front.time.advance(700)
        text = words(await visitor.get("entity/duplicates", path="q", range="10m"))
        assert "No duplicate was dropped in the last 10 minutes." in text

    visit(tmp_path, play)


def test_the_namespace_has_a_page_of_all_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("one", requires_duplicate_detection=True)
        await front.topic("two", "all", requires_duplicate_detection=True)
        await front.queue("plain")
        for path, identity in (("one", "a"), ("two", "b"), ("one", "c")):
            await front.broker.send(path, [message(identity), message(identity)])
            await front.broker.counts(path)
            front.time.advance(2)
        text = words(await visitor.get("duplicates"))
        assert "In the last 24 hours 3 duplicates dropped" in text
        table = text.partition("Original Its number")[2]
        assert re.search(r"c one 2.0 s ago 0 ms number 3 4 b two .* number 1 2 a one .* number 1 2", table)
        monkeypatch.setattr(duplicates, "TALLIED", 2)
        monkeypatch.setattr(duplicates, "PAGE", 1)
        text = words(await visitor.get("duplicates"))
        assert "more than 2 duplicates dropped" in text
        assert "These are the newest 1." in text

    visit(tmp_path, play)


def test_a_topic_has_a_record_too(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "all", requires_duplicate_detection=True)
        await visitor.front.broker.send("news", [message("same"), message("same")])
        page = await visitor.get("entity/duplicates", path="news", message_id="same")
        assert "Yes: same was dropped 1 time." in words(page)
        # The copies of a topic are in its subscriptions, under other numbers.
        assert ("number 1 2" in words(page), "consumed" in words(page)) == (True, False)

    visit(tmp_path, play)


def test_a_poll_is_no_use_of_the_session_and_keeps_the_notices(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True)
        answer = await visitor.post("entity/resubmit", {"path": "q"})
        assert answer.status_code == 303
        polled = await visitor.get("entity/duplicates", path="q", poll=1)
        assert polled.status_code == 200
        assert "Nothing was chosen." in words(await visitor.get("entity/duplicates", path="q"))
        for _ in range(2):
            visitor.front.time.advance(40 * 60)
            polled = await visitor.get("entity/duplicates", path="q", poll=1)
        assert polled.status_code == 401

    visit(tmp_path, play)


def test_an_id_is_forgotten_after_confirmation(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True, enable_partitioning=True)
        await front.broker.send("q", [message(NASTY, session="s")])
        page = await visitor.get("entity/duplicates", path="q", message_id=NASTY)
        assert "Let this id be sent again" in words(page)
        assert "Forgotten ids" not in words(page)
        fields = {"path": "q", "message-id": NASTY, "session-id": "s"}
        asked = await visitor.post("entity/forget", fields)
        assert asked.headers["location"] == link("entity/duplicates", path="q", message_id=NASTY)
        assert "Nothing was forgotten. Check the box" in words(await visitor.get("entity/duplicates", path="q"))
        assert await front.broker.forgets("q") == []
        await visitor.post("entity/forget", fields | {"sure": "on"})
        text = words(await visitor.get("entity/duplicates", path="q"))
        assert "The id is forgotten. It was remembered from message" in text
        assert f"Forgotten ids MessageId Forgotten Original Sent {NASTY}" in text
        await visitor.post("entity/forget", fields | {"sure": "on"})
        assert "was not remembered" in words(await visitor.get("entity/duplicates", path="q"))
        await front.broker.send("q", [message(NASTY, session="s")])
        assert (await front.broker.counts("q")).duplicates == 0

    visit(tmp_path, play)


def test_what_is_forgotten_follows_the_detection_key(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True, detection_key="property:order")
        await front.queue("bodies", requires_duplicate_detection=True, detection_key="body")
        page = await visitor.get("entity/duplicates", path="q", message_id="m")
        assert "Value of the property order" in words(page)
        # The MessageId must not be taken for the value of the property.
        assert 'name="message-id" value="m"' not in page.text
        assert "be sent again" not in words(await visitor.get("entity/duplicates", path="bodies", message_id="m"))
        assert "the property order is remembered" in words(await visitor.get("entity", path="q"))
        assert "a body is remembered" in words(await visitor.get("entity", path="bodies"))

    visit(tmp_path, play)


# The search


def test_a_message_is_found_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        await front.topic("news", "all")
        await front.broker.send("q", [message("x"), message("x"), message("y")])
        await front.broker.send("news", [message("x")])
        await front.broker.counts("q")
        await front.broker.counts("news")
        page = await visitor.get("search", message_id="x")
        text = words(page)
        assert "q Messages Active 1" in text
        assert "news/Subscriptions/all Messages Active 1" in text
        assert re.search(r"q just now 0 ms number 1", text)
        assert "entity/messages?path=q&amp;from=1&amp;show=1" in page.text
        await front.broker.receive(Address("q"), 1, mode=Mode.RECEIVE_AND_DELETE)
        await front.broker.receive(Address("news/Subscriptions/all"), 1, mode=Mode.RECEIVE_AND_DELETE)
        assert "None: the original is already consumed." in words(await visitor.get("search", message_id="x"))
        text = words(await visitor.get("search", message_id="unheard"))
        assert "None: it is already consumed, or it was never sent here." in text
        assert (await visitor.get("search")).status_code == 400
        assert (await visitor.get("search", message_id="x" * 300)).status_code == 400
        await front.broker.send("q", [message(f"{number}") for number in range(6)])
        await front.broker.counts("q")
        monkeypatch.setattr(looking, "READ_AT_ONCE", 2)
        monkeypatch.setattr(looking, "MOST_READ", 4)
        page = await visitor.get("search", message_id="y")
        assert "None among the" in words(page)
        [before] = re.findall(r"before=(\d+)", page.text)
        assert "q Messages Active 3" in words(await visitor.get("search", message_id="y", before=before))

    visit(tmp_path, play)


def test_the_search_of_all_entities_needs_manage(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        for page in ("search", "duplicates"):
            assert (await visitor.get(page, message_id="x")).status_code == 403
        assert "Find a MessageId" not in (await visitor.get("entity/messages", path="q")).text

    visit(tmp_path, play, rule=LISTENER)


def test_the_tally_of_duplicates() -> None:
    found = [
        Duplicate(1, number, identity, number * SECOND, number, 1, at)
        for number, (identity, at) in enumerate([("a", 0), ("b", 0), ("a", None), ("a", 4 * SECOND)])
    ]
    counted = tally(found, 1)
    assert (counted.count, counted.ids) == (4, [((1, "a"), 3)])
    # Clocks of different machines may disagree: a duplicate never comes before its original.
    assert (counted.median, counted.longest) == (0, SECOND)
    assert tally([], 5) == (tally([], 5).__class__)(0, [], None, None)
