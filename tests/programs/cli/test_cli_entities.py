"""`oncebus queue`, `topic`, `subscription` and `rule` against a broker over HTTP."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from oncebus.model.access import KeyFile, Right
from oncebus.model.entities import (
    NO_LIMIT,
    CorrelationFilter,
    EntityStatus,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from oncebus.values.durations import HOUR, MINUTE

from .served_broker import Served

RULE = ("--topic-name", "news", "--subscription-name", "rules")


def queue(served: Served, name: str) -> Queue:
    return served.broker.catalogue.queue(name)


def rules(served: Served) -> dict[str, Rule]:
    found = served.broker.catalogue.find("news/Subscriptions/rules")
    assert isinstance(found, Subscription)
    return {rule.name: rule for rule in found.rules}


@pytest.fixture(scope="module", autouse=True)
def _news(served: Served) -> None:
    served.ok("topic", "create", "--name", "news")
    served.ok("subscription", "create", "--topic-name", "news", "--name", "rules")


def test_all_flags_of_az_set_their_properties(served: Served) -> None:
    served.ok("queue", "create", "-n", "target")
    flags = """
        --enable-duplicate-detection true --duplicate-detection-history-time-window PT1H --enable-session false
        --lock-duration 00:02:00 --max-delivery-count 5 --max-size 2048 --default-message-time-to-live P1D
        --enable-dead-lettering-on-message-expiration --forward-to target --forward-dead-lettered-messages-to target
        --auto-delete-on-idle PT1H --enable-express false --status SendDisabled --enable-batched-operations false
        --enable-partitioning --user-metadata mine --resource-group any --namespace-name ONCEBUS
    """
    served.ok("queue", "create", "--name", "all/flags", *flags.split())
    made = queue(served, "all/flags")
    assert made == Queue(
        name="all/flags",
        id=made.id,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=HOUR,
        lock_duration=2 * MINUTE,
        max_delivery_count=5,
        max_size_in_megabytes=2048 * 16,
        default_message_time_to_live=24 * HOUR,
        dead_lettering_on_message_expiration=True,
        forward_to="target",
        forward_dead_lettered_messages_to="target",
        auto_delete_on_idle=HOUR,
        status=EntityStatus.SEND_DISABLED,
        enable_batched_operations=False,
        enable_partitioning=True,
        user_metadata="mine",
        max_message_size_in_kilobytes=256,
        created_at=made.created_at,
        updated_at=made.updated_at,
    )


def test_short_flags_and_durations_in_words_are_accepted(served: Served) -> None:
    served.ok("queue", "create", "-n", "short", "--duplicate-detection", "-d", "3 hours", "-g", "any")
    assert queue(served, "short").window == 3 * HOUR


@pytest.mark.parametrize("typed", ["2h", "120m", "PT2H", "02:00:00", "2 hours", "1h60m"])
def test_a_window_may_be_typed_in_any_of_the_forms(served: Served, typed: str) -> None:
    served.ok("queue", "create", "-n", "typed", "--enable-duplicate-detection", "-d", typed)
    assert queue(served, "typed").window == 2 * HOUR
    served.ok("queue", "delete", "-n", "typed")


@pytest.mark.parametrize("typed", ["soon", "10", "10x", "PT", "1:2:3:4"])
def test_the_error_for_a_bad_duration_names_all_forms(served: Served, typed: str) -> None:
    result = served.run("queue", "create", "-n", "typed", "--lock-duration", typed)
    assert result.exit_code == 2
    forms = "90s, 10m, 2h, 7d, PT10M, 00:10:00 or '10 minutes'"
    assert f"'--lock-duration': Value '{typed}' is not a duration. Write it like {forms}." in result.stderr


def test_detection_is_switched_on_for_an_existing_queue_only_with_an_explicit_flag(served: Served) -> None:
    served.ok("queue", "create", "--name", "later", "--max-delivery-count", "4")
    switching = ("queue", "update", "--name", "later", "--enable-duplicate-detection", "-d", "PT2H")
    refused = served.run(*switching)
    assert refused.exit_code == 1
    assert (
        "The value for the RequiresDuplicateDetection property of an existing Queue cannot be changed."
        in refused.stderr
    )
    assert queue(served, "later").window is None
    served.ok(*switching, "--from-now-on")
    assert (queue(served, "later").window, queue(served, "later").max_delivery_count) == (2 * HOUR, 4)
    for words, code, text in (
        ((*switching, "--from-now-on"), 1, "The queue 'later' detects duplicates already."),
        (("queue", "update", "--name", "later", "--from-now-on"), 2, "needs --enable-duplicate-detection"),
        (("topic", "update", "--name", "none", "--from-now-on", "--enable-duplicate-detection"), 1, "no topic 'none'"),
    ):
        failed = served.run(*words)
        assert (failed.exit_code, text in failed.stderr) == (code, True), failed.stderr


def test_a_detection_key_is_chosen_at_creation_or_when_detection_is_switched_on(served: Served) -> None:
    key = ("--detection-key", "property:order")
    served.ok("queue", "create", "--name", "keyed", "--enable-duplicate-detection", *key)
    assert queue(served, "keyed").detection_key == "property:order"
    assert "property:order" in served.ok("queue", "show", "--name", "keyed")
    served.ok("queue", "update", "--name", "keyed", "--max-delivery-count", "3")
    served.ok("queue", "create", "--name", "keyed")
    assert queue(served, "keyed").detection_key == "property:order"
    for words, text in (
        (
            ("queue", "update", "--name", "keyed", "--detection-key", "body"),
            "DetectionKey property of an existing Queue",
        ),
        (("queue", "create", "--name", "bad", *key), "needs duplicate detection, which is off."),
    ):
        failed = served.run(*words)
        assert (failed.exit_code, text in failed.stderr) == (1, True), failed.stderr
    served.ok("topic", "create", "--name", "keyed-later")
    served.ok("topic", "update", "--name", "keyed-later", "--enable-duplicate-detection", "--from-now-on", *key)
    assert served.broker.catalogue.topic("keyed-later").detection_key == "property:order"
    assert "oncebusDetectionKey" not in served.ok("queue", "show", "--name", "later")


def test_create_resets_properties_that_are_not_given_and_update_keeps_them(served: Served) -> None:
    served.ok("queue", "create", "-n", "kept", "--lock-duration", "PT2M", "--max-delivery-count", "3")
    served.ok("queue", "update", "-n", "kept", "--max-delivery-count", "4")
    assert (queue(served, "kept").lock_duration, queue(served, "kept").max_delivery_count) == (2 * MINUTE, 4)
    served.ok("queue", "create", "-n", "kept")
    assert (queue(served, "kept").lock_duration, queue(served, "kept").max_delivery_count) == (MINUTE, 10)


def test_create_on_an_existing_queue_resets_its_window_and_keeps_messages_and_ids(
    served: Served,
) -> None:
    words = "--enable-duplicate-detection --enable-session -d 1h --status ReceiveDisabled --user-metadata mine"
    served.ok("queue", "create", "-n", "over", *words.split())
    served.ok("send", "over", "x", "--message-id", "1", "--session-id", "s")
    before = queue(served, "over")
    served.ok("queue", "create", "-n", "over")
    after = queue(served, "over")
    assert (before.window, after.window) == (HOUR, 10 * MINUTE)
    assert (before.status, after.status) == (EntityStatus.RECEIVE_DISABLED, EntityStatus.ACTIVE)
    assert (after.id, after.created_at, after.user_metadata) == (before.id, before.created_at, "mine")
    assert after.requires_session
    served.ok("send", "over", "x", "--message-id", "1", "--session-id", "s")
    assert [drop["messageId"] for drop in served.json_lines("duplicates", "over")] == ["1"]
    assert len(served.json_lines("peek", "over")) == 1
    refused = served.refusal("queue", "create", "-n", "over", "--enable-session", "false")
    assert "The value for the RequiresSession property of an existing Queue cannot be changed." in refused


def test_create_on_an_existing_subscription_keeps_its_rules(served: Served) -> None:
    where = ("--topic-name", "news", "--subscription-name", "over")
    served.ok("subscription", "create", "--topic-name", "news", "-n", "over", "--lock-duration", "2m")
    served.ok("rule", "create", *where, "-n", "high", "--filter-sql-expression", "price > 100")
    served.ok("subscription", "create", "--topic-name", "news", "-n", "over")
    assert served.broker.catalogue.subscription("news", "over").lock_duration == MINUTE
    assert [each["name"] for each in served.json("rule", "list", *where)] == ["$Default", "high"]


def test_an_update_can_remove_forwarding_and_keeps_the_size_of_a_partitioned_queue(served: Served) -> None:
    served.ok("queue", "create", "-n", "there")
    served.ok("queue", "create", "-n", "from", "--forward-to", "there", "--enable-partitioning", "--max-size", "1024")
    size = queue(served, "from").max_size_in_megabytes
    served.ok("queue", "update", "-n", "from", "--forward-to", "")
    assert (queue(served, "from").forward_to, queue(served, "from").max_size_in_megabytes) == (None, size)


def test_show_and_list_print_tables_or_json(served: Served) -> None:
    served.ok("queue", "create", "-n", "shown", "--enable-duplicate-detection")
    served.ok("send", "shown", "hello")
    text = served.ok("queue", "show", "-n", "SHOWN")
    assert "Queue shown" in text
    assert "duplicateDetectionHistoryTimeWindow" in text
    shown = served.json("queue", "show", "-n", "shown")
    assert shown["properties"]["countDetails"]["activeMessageCount"] == 1
    names = [each["name"] for each in served.json("queue", "list")]
    assert "shown" in names
    row = next(line for line in served.ok("queue", "list").splitlines() if " shown " in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["shown", "Active", "1", "0", "0", "PT10M"]


def test_deleting_a_queue_that_does_not_exist_is_no_failure(served: Served) -> None:
    served.ok("queue", "create", "-n", "gone")
    assert served.ok("queue", "delete", "-n", "gone") == "Queue gone is deleted.\n"
    assert served.broker.catalogue.find("gone") is None
    assert served.ok("queue", "delete", "-n", "gone") == "There is no queue 'gone'.\n"


def test_topics_and_subscriptions_have_their_own_flags(served: Served) -> None:
    served.ok("topic", "create", "-n", "a/topic", "--enable-duplicate-detection", "--enable-ordering", "false")
    topic = served.broker.catalogue.topic("a/topic")
    assert isinstance(topic, Topic)
    assert (topic.window, topic.support_ordering) == (10 * MINUTE, False)
    where = ("--topic-name", "a/topic")
    served.ok(
        "subscription", "create", *where, "-n", "s", "--enable-session", "-f", "false", "--lock-duration", "PT30S"
    )
    made = served.broker.catalogue.subscription("a/topic", "s")
    assert (made.requires_session, made.dead_lettering_on_filter_evaluation_exceptions) == (True, False)
    served.ok("subscription", "update", *where, "-n", "s", "--status", "disabled")
    changed = served.broker.catalogue.subscription("a/topic", "s")
    assert (changed.status, changed.lock_duration) == (EntityStatus.DISABLED, MINUTE // 2)
    assert [each["name"] for each in served.json("subscription", "list", *where)] == ["s"]
    assert served.json("subscription", "show", *where, "-n", "s")["type"].endswith("topics/subscriptions")
    assert served.ok("subscription", "delete", *where, "-n", "s") == "Subscription s is deleted.\n"
    assert served.ok("subscription", "list", *where) == "There are no subscriptions.\n"
    assert "a/topic" in served.ok("topic", "list")
    served.ok("topic", "delete", "-n", "a/topic")
    assert served.broker.catalogue.find("a/topic") is None


def test_long_lists_are_complete(served: Served) -> None:
    def made(catalogue: Any, now: int) -> Any:
        for at in range(1005):
            catalogue = catalogue.create(Subscription(topic="many", name=f"s{at:04}"), now)
        return catalogue

    served.ok("topic", "create", "-n", "many")
    served.do(served.broker.change(made))
    found = [each["name"] for each in served.json("subscription", "list", "--topic-name", "many")]
    assert found == [f"s{at:04}" for at in range(1005)]


def test_rules_have_sql_filters_and_actions(served: Served) -> None:
    served.ok("rule", "create", *RULE, "-n", "high", "--filter-sql-expression", "price > 100")
    served.ok("rule", "update", *RULE, "-n", "high", "--action-sql-expression", "SET urgent = true")
    assert rules(served)["high"].filter == SqlFilter("price > 100")
    assert rules(served)["high"].action == SqlAction("SET urgent = true")
    served.ok("rule", "update", *RULE, "-n", "high", "--filter-sql-expression", "price > 200")
    assert (rules(served)["high"].filter, rules(served)["high"].action) == (
        SqlFilter("price > 200"),
        SqlAction("SET urgent = true"),
    )
    served.ok("rule", "update", *RULE, "-n", "high", "--action-sql-expression", "")
    assert rules(served)["high"].action is None
    assert served.json("rule", "show", *RULE, "-n", "high")["properties"]["filterType"] == "SqlFilter"


def test_rules_have_correlation_filters(served: Served) -> None:
    words = "--correlation-filter colour=red --correlation-filter size=a=b --label news --session-id s --to t"
    served.ok("rule", "create", *RULE, "-n", "red", *words.split())
    assert rules(served)["red"].filter == CorrelationFilter(
        label="news", session_id="s", to="t", properties=(("colour", "red"), ("size", "a=b"))
    )
    served.ok("rule", "update", *RULE, "-n", "red", "--filter-sql-expression", "a = 1")
    assert rules(served)["red"].filter == SqlFilter("a = 1")
    served.ok("rule", "update", *RULE, "-n", "red", "--filter-type", "CorrelationFilter", "--correlation-id", "c")
    assert rules(served)["red"].filter == CorrelationFilter(correlation_id="c")
    table = served.ok("rule", "list", *RULE)
    assert '{"correlationId": "c", "properties": {}}' in table
    served.ok("rule", "delete", *RULE, "-n", "red")
    assert "red" not in rules(served)


def test_a_new_action_leaves_a_filter_with_typed_values_alone(served: Served) -> None:
    typed = CorrelationFilter(properties=(("id", UUID(int=5)), ("due", datetime(2026, 1, 31, tzinfo=UTC))))
    asked = SqlFilter("price > @least", parameters=(("@least", 5),))
    for name, filter in (("typed", typed), ("asked", asked)):  # noqa: A001
        rule = Rule(name, filter)
        served.do(served.broker.change(lambda catalogue, now: catalogue.create_rule("news", "rules", rule, now)))  # noqa: B023
        served.ok("rule", "update", *RULE, "-n", name, "--action-sql-expression", "SET x = 1")
        assert (rules(served)[name].filter, rules(served)[name].action) == (filter, SqlAction("SET x = 1"))


def test_rules_store_the_flags_of_az_that_have_no_effect(served: Served) -> None:
    words = "--enable-sql-preprocessing true --action-compatibility-level 20 --enable-action-preprocessing false"
    given = ["--filter-sql-expression", "a = 1", "--action-sql-expression", "SET b = 2", *words.split()]
    served.ok("rule", "create", *RULE, "-n", "noted", *given)
    assert rules(served)["noted"].filter == SqlFilter("a = 1", (), 20, True)
    assert rules(served)["noted"].action == SqlAction("SET b = 2", (), 20, False)


def test_a_rule_without_a_filter_selects_all_messages(served: Served) -> None:
    served.ok("rule", "create", *RULE, "-n", "all")
    assert rules(served)["all"].filter == TrueFilter()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "show", "-n", "nothing"], "There is no queue 'nothing'."),
        (["queue", "update", "-n", "nothing"], "There is no queue 'nothing'."),
        (["rule", "show", *RULE, "-n", "nothing"], "There is no rule 'nothing'."),
        (["queue", "create", "-n", "bad name!"], "'bad name!' contains character(s)"),
        (
            ["queue", "create", "-n", "x", "--lock-duration", "PT9M"],
            "answers 400: SubCode=40000. The supplied lock time",
        ),
        (["queue", "create", "-n", "x", "--max-size", "5"], "The specified value 5 is invalid."),
        (["topic", "show", "-n", "nothing"], "There is no topic 'nothing'."),
        (["subscription", "list", "--topic-name", "nothing"], "answers 404: "),
        (["rule", "create", *RULE, "-n", "x", "--filter-sql-expression", "a ="], "The filter cannot be read"),
        (
            ["rule", "create", *RULE, "-n", "x", "--filter-sql-expression", "a = 1", "--label", "l"],
            "A rule has a SQL filter or a correlation filter, not both.",
        ),
        (["rule", "create", *RULE, "-n", "x", "--correlation-filter", "red"], "'red'. Write it like name=value."),
        (
            ["rule", "create", *RULE, "-n", "x", "--filter-type", "correlationfilter"],
            "which contradicts the other options.",
        ),
        (["rule", "update", *RULE, "-n", "$Default", "--filter-type", "SqlFilter"], "Give the filter too"),
        (
            ["queue", "list", "--namespace-name", "other"],
            "Option --namespace-name has value 'other'. The broker at {url} is the namespace 'oncebus'.",
        ),
        (["queue", "list", "--rule", "nobody"], "Authorization rule 'nobody' is not in"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(served: Served, words: list[str], said: str) -> None:
    assert said.format(url=served.url) in served.refusal(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["queue"],
        ["queue", "create"],
        ["queue", "make", "-n", "x"],
        ["queue", "create", "-n", "x", "--max-size", "large"],
        ["queue", "create", "-n", "x", "--lock-duration", "soon"],
        ["queue", "create", "-n", "x", "--status", "Sleepy"],
        ["queue", "create", "-n", "x", "--enable-session", "perhaps"],
        ["subscription", "list"],
        ["rule", "create", "-n", "x"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(served: Served, words: list[str]) -> None:
    assert served.run(*words).exit_code == 2


def test_managing_without_the_right_is_refused(served: Served) -> None:
    KeyFile(served.data / "keys.json").put("sender", [Right.SEND])
    assert "answers 403: " in served.refusal("queue", "create", "-n", "x", "--rule", "sender")


def test_a_broker_that_cannot_be_reached_is_named(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = served.refusal("queue", "list", "--url", f"http://127.0.0.1:{port}")
    assert said == f"The broker at http://127.0.0.1:{port} cannot be reached: Connection refused."


def test_no_limit_is_shown_as_the_service_writes_it(served: Served) -> None:
    served.ok("queue", "create", "-n", "endless")
    assert queue(served, "endless").default_message_time_to_live == NO_LIMIT
    shown = served.ok("queue", "show", "-n", "endless")
    assert "never" in shown
    assert "10675199" not in shown
