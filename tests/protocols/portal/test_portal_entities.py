"""Creating, changing and deleting entities."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from oncebus.model.entities import NO_LIMIT, EntityStatus, Queue, Rule, SqlFilter, Tier, TrueFilter
from oncebus.protocols.portal import entity
from oncebus.protocols.portal.entity_table import FIGURES
from oncebus.protocols.portal.markup import visible
from oncebus.values.durations import DAY, HOUR, MINUTE, SECOND

from .conftest import Shared
from .visitor import Visitor, shown, visit, words

WINDOW = "duplicate_detection_history_time_window"
DETECTION = "requires_duplicate_detection"
RANGE = "The value supplied must be between 00:00:20 and 7.00:00:00."


def field(answer: httpx.Response, name: str) -> str:
    """Return the tag of a field on a page."""
    [found] = re.findall(rf'<(?:input|textarea|select) id="{re.escape(name)}"[^>]*>', answer.text)
    return str(found)


def error_at(answer: httpx.Response, name: str) -> str:
    """Return the error at a field of a page."""
    found = re.search(rf'id="{re.escape(name)}-error" class="error">([^<]*)<', answer.text)
    assert found is not None, shown(answer)
    assert f"{name}-error" in field(answer, name)
    return found[1]


def test_detection_is_off_by_default(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        page = await visitor.get("create", kind="queue")
        assert "checked" not in field(page, DETECTION)
        assert 'value="10"' in field(page, f"{WINDOW}-minutes")
        page = await visitor.new("create", {"kind": "queue", "name": "orders"})
        assert "The queue 'orders' was created." in words(page)
        made = visitor.front.broker.catalogue.queue("orders")
        plain = Queue(name="orders")
        for name in ("requires_duplicate_detection", "lock_duration", "max_delivery_count", "requires_session"):
            assert getattr(made, name) == getattr(plain, name)

    visit(tmp_path, play)


def test_a_queue_is_created_as_the_form_says(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("elsewhere")
        await visitor.new(
            "create",
            {
                "kind": "queue",
                "name": "a/b",
                DETECTION: "on",
                f"{WINDOW}-days": "1",
                f"{WINDOW}-hours": "2",
                f"{WINDOW}-minutes": "",
                f"{WINDOW}-seconds": "30",
                "enable_partitioning": "on",
                "lock_duration": "00:02:00",
                "max_delivery_count": "3",
                "default_message_time_to_live": "P14D",
                "dead_lettering_on_message_expiration": "on",
                "forward_to": "elsewhere",
                "forward_dead_lettered_messages_to": "elsewhere",
                "max_size_in_megabytes": "2048",
                "auto_delete_on_idle": "PT1H",
                "user_metadata": "of the shop\nin Ghent",
            },
        )
        made = visitor.front.broker.catalogue.queue("a/b")
        assert made.window == DAY + 2 * HOUR + 30 * SECOND
        assert (made.enable_partitioning, made.requires_session) == (True, False)
        assert (made.lock_duration, made.max_delivery_count) == (2 * MINUTE, 3)
        assert made.default_message_time_to_live == 14 * DAY
        assert made.dead_lettering_on_message_expiration
        assert (made.forward_to, made.forward_dead_lettered_messages_to) == ("elsewhere", "elsewhere")
        assert (made.max_size_in_megabytes, made.auto_delete_on_idle) == (16 * 2048, HOUR)
        assert made.user_metadata == "of the shop\nin Ghent"

    visit(tmp_path, play)


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({DETECTION: "on", f"{WINDOW}-seconds": "5"}, f"{WINDOW}-days", f"{RANGE} Actual value was 00:00:05."),
        ({DETECTION: "on", f"{WINDOW}-iso": "P8D"}, f"{WINDOW}-days", f"{RANGE} Actual value was 8.00:00:00."),
        ({DETECTION: "on", f"{WINDOW}-iso": "soon"}, f"{WINDOW}-days", "The value 'soon' of the property"),
        ({DETECTION: "on", f"{WINDOW}-days": "-1"}, f"{WINDOW}-days", "The number of days has value '-1'."),
        ({DETECTION: "on", f"{WINDOW}-days": "9" * 13}, f"{WINDOW}-days", "Not a whole number."),
        (
            {"lock_duration": "PT6M"},
            "lock_duration",
            "The supplied lock time exceeds the allowed maximum of '5' minutes.",
        ),
        ({"lock_duration": "x"}, "lock_duration", "is not a duration"),
        ({"max_delivery_count": "0"}, "max_delivery_count", "The value supplied must be between 1 and 2000."),
        ({"max_delivery_count": ""}, "max_delivery_count", "Not a whole number."),
        ({"max_delivery_count": "ten"}, "max_delivery_count", "The max delivery count has value 'ten'."),
        ({"forward_to": "nowhere"}, "forward_to", "'nowhere' does not exist."),
        ({"max_size_in_megabytes": "77"}, "max_size_in_megabytes", "must be one of the following values"),
        ({"auto_delete_on_idle": "PT1M"}, "auto_delete_on_idle", "The value supplied must be between 00:05:00"),
        ({"default_message_time_to_live": "PT0S"}, "default_message_time_to_live", "must be between 00:00:01"),
        ({"name": "a b"}, "name", "contains character(s) that is not allowed"),
        ({"name": ""}, "name", "The entity path is empty."),
        ({"name": "a//b"}, "name", "contains an empty segment."),
        ({"name": "a/"}, "name", "as prefix or suffix."),
        ({"name": "orders"}, "name", "The messaging entity 'orders' already exists."),
        ({"name": "x" * 261}, "name", "exceeds the '260' character limit."),
    ],
)
def test_errors_are_at_their_fields_and_the_form_keeps_its_values(
    shared: Shared, fields: dict[str, str], name: str, expected: str
) -> None:
    async def play(visitor: Visitor) -> None:
        typed = {"kind": "queue", "name": "wrong", "user_metadata": "kept <b>", "lock_duration": "PT7S", **fields}
        answer = await visitor.post("create", typed)
        assert answer.status_code in (400, 409)
        assert expected in error_at(answer, name).replace("&#x27;", "'")
        assert 'role="alert"' in answer.text
        for each, value in typed.items():
            if each.startswith(WINDOW) or each in ("name", "lock_duration", "max_delivery_count", "forward_to"):
                assert f'value="{value}"' in field(answer, each)
        assert ("checked" in field(answer, DETECTION)) == (DETECTION in typed)
        assert "kept &lt;b&gt;" in answer.text
        assert [queue.name for queue in visitor.front.broker.catalogue.queues] == ["orders"]

    shared(play)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\"'><svg onload=alert(1)>", "\u202eevil", "a\u0000b"])
def test_invalid_names_are_shown_as_text(shared: Shared, name: str) -> None:
    async def play(visitor: Visitor) -> None:
        answer = await visitor.post("create", {"kind": "queue", "name": name})
        assert answer.status_code == 400
        assert "<svg" not in answer.text
        assert "<script>" not in answer.text
        assert visible(name) in shown(answer)
        missing = await visitor.get("entity", path=name)
        assert missing.status_code == 404
        assert "<svg" not in missing.text
        assert "<script>" not in missing.text

    shared(play)


def test_without_detection_there_is_no_window_to_be_wrong(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.new("create", {"kind": "queue", "name": "q", f"{WINDOW}-seconds": "5"})
        assert visitor.front.broker.catalogue.queue("q").window is None

    visit(tmp_path, play)


def test_the_window_can_be_changed_and_detection_cannot(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True, lock_duration=30 * SECOND)
        page = await visitor.get("entity/change", path="q")
        for name in (DETECTION, "requires_session", "enable_partitioning"):
            assert " disabled" in field(page, name)
        assert " checked" in field(page, DETECTION)
        assert "Chosen at creation: it cannot be changed." in words(page)
        assert "It cannot be switched off later." in words(page)
        extension = "It cannot be switched off later; switching it on later is an extension."
        assert extension in words(await visitor.get("create", kind="queue"))
        assert " disabled" not in field(page, f"{WINDOW}-hours")
        version = re.search(r'name="version" value="(\d+)"', page.text)
        assert version is not None
        fields = {
            "path": "q",
            "version": version[1],
            f"{WINDOW}-hours": "3",
            "lock_duration": "PT30S",
            "max_delivery_count": "10",
            "default_message_time_to_live": "",
            "status": "SendDisabled",
        }
        page = await visitor.new("entity/change", fields)
        assert "The changes are in effect." in words(page)
        changed = visitor.front.broker.catalogue.queue("q")
        assert (changed.window, changed.lock_duration) == (3 * HOUR, 30 * SECOND)
        assert (changed.default_message_time_to_live, changed.status) == (NO_LIMIT, EntityStatus.SEND_DISABLED)
        # A form that contains it nevertheless gets the namespace's error.
        visitor.front.time.advance(1)
        current = {**fields, "version": str(changed.updated_at)}
        answer = await visitor.post("entity/change", {**current, "requires_session": "on"})
        assert answer.status_code == 400
        expected = "The value for the RequiresSession property of an existing Queue cannot be changed."
        assert expected in error_at(answer, "requires_session")
        assert visitor.front.broker.catalogue.queue("q") == changed

    visit(tmp_path, play)


def test_a_window_out_of_range_is_an_error_in_a_change_too(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q", requires_duplicate_detection=True)
        before = visitor.front.broker.catalogue.queue("q")
        fields = {"path": "q", "version": str(before.updated_at), "max_delivery_count": "7", f"{WINDOW}-iso": "PT19S"}
        answer = await visitor.post("entity/change", fields)
        assert answer.status_code == 400
        assert error_at(answer, f"{WINDOW}-days") == f"{RANGE} Actual value was 00:00:19."
        assert 'value="7"' in field(answer, "max_delivery_count")
        assert " checked" in field(answer, DETECTION)
        assert visitor.front.broker.catalogue.queue("q") == before

    visit(tmp_path, play)


def test_a_form_about_an_earlier_state_changes_nothing(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("q")
        stale = str(visitor.front.broker.catalogue.queue("q").updated_at)
        visitor.front.time.advance(1)
        await visitor.new("entity/change", {"path": "q", "version": stale, "max_delivery_count": "5"})
        answer = await visitor.post("entity/change", {"path": "q", "version": stale, "max_delivery_count": "6"})
        assert answer.status_code == 409
        assert "'q' was changed meanwhile." in words(answer)
        assert visitor.front.broker.catalogue.queue("q").max_delivery_count == 5
        # The page now has the new version, so submitting it again is deliberate.
        version = re.search(r'name="version" value="(\d+)"', answer.text)
        assert version is not None
        await visitor.new("entity/change", {"path": "q", "version": version[1], "max_delivery_count": "6"})
        assert visitor.front.broker.catalogue.queue("q").max_delivery_count == 6

    visit(tmp_path, play)


def test_basic_has_no_detection_and_the_form_says_so(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        page = await visitor.get("create", kind="queue")
        for name in (DETECTION, "requires_session", "forward_to"):
            assert " disabled" in field(page, name)
        assert "is using the 'Basic' tier. This operation is only supported in 'Standard' or 'Premium' tier." in shown(
            page
        )
        assert " disabled" not in field(page, "enable_partitioning")
        topic = await visitor.get("create", kind="topic")
        assert "Cannot operate on type Topic because the namespace 'oncebus' is using 'Basic' tier." in shown(topic)
        answer = await visitor.post(
            "create", {"kind": "queue", "name": "q", DETECTION: "on", f"{WINDOW}-minutes": "10"}
        )
        assert answer.status_code == 400
        assert "'Standard' or 'Premium' tier." in error_at(answer, DETECTION).replace("&#x27;", "'")
        await visitor.new("create", {"kind": "queue", "name": "q"})

    visit(tmp_path, play, tier=Tier.BASIC)


def test_premium_has_no_partitions_and_larger_messages(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        page = await visitor.get("create", kind="topic")
        assert " disabled" in field(page, "enable_partitioning")
        assert " disabled" not in field(page, DETECTION)
        assert "is using the 'Premium' tier. This operation is only supported in 'Basic' or 'Standard' tier." in shown(
            page
        )
        await visitor.new("create", {"kind": "topic", "name": "t", "max_message_size_in_kilobytes": "2048"})
        assert visitor.front.broker.catalogue.topic("t").max_message_size_in_kilobytes == 2048

    visit(tmp_path, play, tier=Tier.PREMIUM)


def test_a_topic_with_a_filtered_subscription(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        catalogue = visitor.front.broker
        await visitor.new("create", {"kind": "topic", "name": "prices", DETECTION: "on", f"{WINDOW}-iso": "PT1H"})
        assert catalogue.catalogue.topic("prices").window == HOUR
        sub = {"kind": "subscription", "topic": "prices"}
        sql = {"filter": "sql", "expression": "price > 100", "action": "SET urgent = true", "rule-name": "above"}
        page = await visitor.new("create", {**sub, **sql, "name": "high"})
        assert "SQL filter price > 100" in words(page)
        assert "Action SET urgent = true" in words(page)
        correlation = {
            "filter": "correlation",
            "filter-label": "new",
            "filter-correlation_id": "<i>me</i>",
            "properties": 'colour: red\nsize: 3\nold: "3"\nfresh: true\nsince: 2026-01-31T08:30:00Z\n',
        }
        page = await visitor.new("create", {**sub, **correlation, "name": "mine"})
        for text in ("Label (subject) = new", "CorrelationId = <i>me</i>", 'colour = "red"', "size = 3", 'old = "3"'):
            assert text in words(page)
        assert "<i>me" not in page.text
        page = await visitor.new("create", {**sub, "filter": "all", "name": "all"})
        assert catalogue.catalogue.subscription("prices", "all").rules[0].filter == TrueFilter()
        page = await visitor.get("entity", path="prices")
        assert [name for name in ("all", "high", "mine") if f">{name}</a>" in page.text] == ["all", "high", "mine"]
        assert "$Default" in words(page)

    visit(tmp_path, play)


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"filter": "sql", "expression": "price >"}, "expression", "The filter cannot be read"),
        ({"filter": "sql", "expression": "Status ="}, "expression", "The filter cannot be read"),
        ({"filter": "sql", "expression": " "}, "expression", "Give an expression."),
        ({"filter": "sql", "expression": "1=1", "action": "SET"}, "action", "The action cannot be read"),
        ({"filter": "correlation", "properties": "colour red"}, "properties", "Write it as name: value."),
        ({"filter": "correlation", "properties": "a: 1\na: 2"}, "properties", "is given more than once."),
    ],
)
def test_the_error_of_an_invalid_rule_is_at_its_field(
    shared: Shared, fields: dict[str, str], name: str, expected: str
) -> None:
    async def play(visitor: Visitor) -> None:
        path = "news/Subscriptions/all"
        answer = await visitor.post("entity/rule", {"path": path, "rule-name": "r", **fields})
        assert (answer.status_code, expected in error_at(answer, name)) == (400, True)
        new = {"kind": "subscription", "topic": "news", "name": "other", "max_delivery_count": "10"}
        answer = await visitor.post("create", {**new, **fields})
        assert (answer.status_code, expected in error_at(answer, name)) == (400, True)
        assert len(visitor.front.broker.catalogue.subscriptions_of("news")) == 1

    shared(play)


def test_rules_are_added_and_removed(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "all")
        path = "news/Subscriptions/all"
        assert "already takes all messages" in words(await visitor.get("entity/rule", path=path))
        rule = {"path": path, "rule-name": "red", "filter": "sql", "expression": "colour = '<b>red</b>'"}
        page = await visitor.new("entity/rule", rule)
        assert "The rule 'red' was added." in words(page)
        assert "<b>red" not in page.text
        assert "colour = '<b>red</b>'" in shown(page)
        answer = await visitor.post("entity/rule", rule)
        assert (answer.status_code, "already exists" in error_at(answer, "rule-name")) == (409, True)
        page = await visitor.new("entity/rule/remove", {"path": path, "rule": "$Default"})
        assert "The rule '$Default' was removed." in words(page)
        [left] = visitor.front.broker.catalogue.subscription("news", "all").rules
        assert left.filter == SqlFilter("colour = '<b>red</b>'")
        assert (await visitor.post("entity/rule/remove", {"path": path, "rule": "gone"})).status_code == 404
        await visitor.front.queue("q")
        assert (await visitor.post("entity/rule", {**rule, "path": "q"})).status_code == 400

    visit(tmp_path, play, pipeline=False)


def test_deleting_needs_the_typed_name(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("orders")
        await visitor.front.topic("news", "all")
        assert "Its 1 subscriptions" not in words(await visitor.get("entity/delete", path="orders"))
        for typed in ("", "Orders", "order", "news"):
            answer = await visitor.post("entity/delete", {"path": "orders", "confirm": typed})
            assert answer.status_code == 400
            assert error_at(answer, "confirm").startswith("The name does not match.")
        assert visitor.front.broker.catalogue.queue("orders")
        page = await visitor.new("entity/delete", {"path": "orders", "confirm": " orders "})
        assert "The queue 'orders' was deleted." in words(page)
        page = await visitor.new("entity/delete", {"path": "news/Subscriptions/all", "confirm": "all"})
        assert "The subscription 'all' was deleted." in words(page)
        await visitor.new("entity/delete", {"path": "news", "confirm": "news"})
        assert not visitor.front.broker.catalogue.entities
        assert (await visitor.get("entity/delete", path="orders")).status_code == 404

    visit(tmp_path, play, pipeline=False)


def test_detection_is_switched_on_for_an_existing_queue_after_its_name_is_typed(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("old", requires_duplicate_detection=False)
        assert "Switch on duplicate detection" in words(await visitor.get("entity/change", path="old"))
        page = words(await visitor.get("entity/detection", path="old"))
        assert "Messages that were sent before are not remembered. This cannot be undone." in page
        hour = {"path": "old", f"{WINDOW}-hours": "1"}
        answer = await visitor.post("entity/detection", {**hour, "confirm": "other"})
        assert (answer.status_code, "does not match" in error_at(answer, "confirm")) == (400, True)
        answer = await visitor.post("entity/detection", {"path": "old", f"{WINDOW}-seconds": "5", "confirm": "old"})
        assert (answer.status_code, RANGE in error_at(answer, f"{WINDOW}-days")) == (400, True)
        assert visitor.front.broker.catalogue.queue("old").window is None
        page = words(await visitor.new("entity/detection", {**hour, "confirm": "old"}))
        assert "Duplicates are detected from now on." in page
        assert visitor.front.broker.catalogue.queue("old").window == HOUR
        assert "Switch on duplicate detection" not in page
        answer = await visitor.post("entity/detection", {**hour, "confirm": "old"})
        assert (answer.status_code, "detects duplicates already" in words(answer)) == (400, True)

    visit(tmp_path, play, pipeline=False)


def test_a_detection_key_is_chosen_at_creation(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        form = {"kind": "queue", "name": "keyed", "detection_key": "property:order"}
        answer = await visitor.post("create", form)
        assert (answer.status_code, "which is off" in error_at(answer, "detection_key")) == (400, True)
        answer = await visitor.post("create", {**form, DETECTION: "on", "detection_key": "x"})
        assert (answer.status_code, "not one of messageId" in error_at(answer, "detection_key")) == (400, True)
        await visitor.new("create", {**form, DETECTION: "on", f"{WINDOW}-hours": "1"})
        assert visitor.front.broker.catalogue.queue("keyed").detection_key == "property:order"
        page = await visitor.get("entity/change", path="keyed")
        assert "disabled" in field(page, "detection_key") or "readonly" in field(page, "detection_key")
        await visitor.front.queue("later")
        switched = {"path": "later", f"{WINDOW}-hours": "1", "detection_key": "body", "confirm": "later"}
        await visitor.new("entity/detection", switched)
        assert visitor.front.broker.catalogue.queue("later").detection_key == "body"

    visit(tmp_path, play, pipeline=False)


def test_unknown_kinds_and_deleted_topics_are_errors(shared: Shared) -> None:
    async def play(visitor: Visitor) -> None:
        assert (await visitor.get("create", kind="<b>")).status_code == 400
        assert (await visitor.get("create")).status_code == 400
        assert (await visitor.get("create", kind="subscription", topic="gone")).status_code == 404
        answer = await visitor.post("create", {"kind": "subscription", "topic": "gone", "name": "s"})
        assert answer.status_code == 404

    shared(play)


def test_the_error_of_a_name_like_a_property_is_at_the_name(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.queue("ForwardTo")
        answer = await visitor.post("create", {"kind": "queue", "name": "ForwardTo"})
        assert (answer.status_code, "already exists" in error_at(answer, "name")) == (409, True)

    visit(tmp_path, play, pipeline=False)


def test_many_subscriptions_and_rules_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity, "PAGE", 2)
    monkeypatch.setattr(entity, "MOST_NAMED", 1)

    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "one", "three", "two")
        for name in ("red", "green"):
            await visitor.front.broker.change(
                lambda catalogue, now, name=name: catalogue.create_rule("news", "two", Rule(name), now)  # type: ignore[misc]
            )
        page = await visitor.get("entity", path="news")
        assert [name for name in ("one", "three", "two") if f">{name}</a>" in page.text] == ["one", "three"]
        assert "1 to 2 of 3" in words(page)
        page = await visitor.get("entity", path="news", page=1)
        assert [name for name in ("one", "three", "two") if f">{name}</a>" in page.text] == ["two"]
        assert "$Default and 2 more" in words(page)
        live = (await visitor.get("entity/live", path="news", page=1)).json()["values"]
        two = visitor.front.broker.catalogue.subscription("news", "two").id
        assert {name for name in live if name[0].isdigit()} == {f"{two}-{name}" for name in FIGURES}
        page = await visitor.get("entity", path="news/Subscriptions/two", page=1)
        assert ("<h3>green</h3>" in page.text, "<h3>red</h3>" in page.text) == (True, False)

    visit(tmp_path, play, pipeline=False)
