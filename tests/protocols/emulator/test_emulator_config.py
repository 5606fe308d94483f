from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.entities import (
    NO_LIMIT,
    Catalogue,
    CorrelationFilter,
    Namespace,
    Queue,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.protocols.emulator.config import WHAT, read_config
from oncebus.protocols.management.entity_file import EntityFile
from oncebus.protocols.management.problems import FileRefused, Problems
from oncebus.values.durations import HOUR, MINUTE, SECOND

from .emulator_config import SAMPLE, config_of, namespace_of, sample

PLACE = "UserConfig.Namespaces[0]"


def file_of(folder: Path, content: Any) -> EntityFile:
    path = folder / "Config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return EntityFile.read(path, WHAT, read_config)


def made(folder: Path, content: Any, before: Catalogue | None = None) -> Catalogue:
    return file_of(folder, content).added_to(before or Catalogue(), 5)


def wrong(folder: Path, content: Any) -> dict[str, str]:
    """Return the problems of a file by their places."""
    with pytest.raises(FileRefused) as caught:
        made(folder, content)
    assert all(line.startswith(f"Configuration file '{folder}/Config.json': ") for line in caught.value.lines)
    assert not any("\n" in line for line in caught.value.lines)
    return {problem.path: problem.text for problem in caught.value.problems}


def test_the_emulators_file_works_unchanged(tmp_path: Path) -> None:
    catalogue = made(tmp_path, SAMPLE)
    assert sorted(entity.path for entity in catalogue.entities.values()) == [
        "orders",
        "prices",
        "prices/Subscriptions/by-own",
        "prices/Subscriptions/by-system",
        "prices/Subscriptions/everything",
    ]
    orders = catalogue.queue("orders")
    assert (orders.window, orders.default_message_time_to_live, orders.max_delivery_count) == (20 * SECOND, HOUR, 3)
    assert (orders.forward_to, orders.forward_dead_lettered_messages_to) == (None, None)
    assert catalogue.topic("prices").window == 5 * MINUTE
    by_system = catalogue.subscription("prices", "by-system")
    assert (by_system.lock_duration, by_system.max_delivery_count) == (2 * MINUTE, 5)
    assert by_system.forward_dead_lettered_messages_to == "orders"
    assert [rule.filter for rule in by_system.rules] == [
        CorrelationFilter(
            content_type="application/json",
            correlation_id="c",
            label="subject",
            message_id="m",
            reply_to="answers",
            reply_to_session_id="rs",
            session_id="s",
            to="me",
        )
    ]
    red, high = catalogue.subscription("prices", "by-own").rules
    assert red.filter == CorrelationFilter(properties=(("Colour", "red"), ("n", 5)))
    assert (high.filter, high.action) == (SqlFilter("price > 100 AND sys.To = 'x'"), SqlAction("SET urgent = true"))
    assert [rule.filter for rule in catalogue.subscription("prices", "everything").rules] == [TrueFilter()]
    assert file_of(tmp_path, SAMPLE).warnings == ()
    assert catalogue.version == 1


def test_comments_and_any_case_of_names_are_allowed(tmp_path: Path) -> None:
    text = """{ // the file
      "$schema": "Config-schema.json",
      "userconfig": {"NAMESPACES": [{"name": "x", /* none */ "queues": [
        {"NAME": "a", "properties": {"lockduration": "PT30S"}} // no more
      ]}]}}"""
    assert made(tmp_path, text).queue("a").lock_duration == 30 * SECOND


def test_a_property_that_is_left_out_has_the_emulators_default(tmp_path: Path) -> None:
    detecting = {"RequiresDuplicateDetection": True}
    catalogue = made(
        tmp_path,
        config_of(
            Queues=[{"Name": "plain"}, {"Name": "exact", "Properties": detecting}],
            Topics=[{"Name": "t", "Properties": detecting, "Subscriptions": [{"Name": "s"}]}],
        ),
    )
    plain = catalogue.queue("plain")
    assert (plain.max_delivery_count, plain.default_message_time_to_live, plain.lock_duration) == (3, HOUR, MINUTE)
    assert (plain.window, plain.auto_delete_on_idle) == (None, NO_LIMIT)
    assert catalogue.queue("exact").window == catalogue.topic("t").window == 20 * SECOND
    assert catalogue.topic("t").default_message_time_to_live == HOUR
    assert catalogue.subscription("t", "s").max_delivery_count == 3


def test_a_window_that_only_the_emulator_allows_is_raised_with_a_warning(tmp_path: Path) -> None:
    config = sample()
    namespace_of(config)["Queues"][0]["Properties"]["DuplicateDetectionHistoryTimeWindow"] = "PT5S"
    file = file_of(tmp_path, config)
    assert file.added_to(Catalogue(), 5).queue("orders").window == 20 * SECOND
    assert file.warnings == (
        f"{PLACE}.Queues[0].Properties.DuplicateDetectionHistoryTimeWindow: The window PT5S is raised to PT20S, the"
        " shortest allowed.",
    )
    namespace_of(config)["Queues"][0]["Properties"]["DuplicateDetectionHistoryTimeWindow"] = "PT4S"
    found = wrong(tmp_path, config)
    assert list(found) == [f"{PLACE}.Queues[0].Properties.DuplicateDetectionHistoryTimeWindow"]


def test_more_than_the_emulator_can_do_is_allowed(tmp_path: Path) -> None:
    queues = [{"Name": f"q{at}", "Properties": {"EnablePartitioning": True}} for at in range(60)]
    long = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "P7D", "MaxDeliveryCount": 2000}
    catalogue = made(tmp_path, config_of(Queues=[*queues, {"Name": "long", "Properties": long}]))
    assert len(catalogue.queues) == 61
    assert catalogue.queue("q0").enable_partitioning


def test_existing_entities_stay_as_they_are(tmp_path: Path) -> None:
    before = made(tmp_path, SAMPLE)
    config = sample()
    namespace_of(config)["Queues"][0]["Properties"]["MaxDeliveryCount"] = 9
    del namespace_of(config)["Topics"][0]["Subscriptions"][1]["Rules"][0]
    assert made(tmp_path, config, before) is before
    namespace_of(config)["Queues"].append({"Name": "new"})
    after = made(tmp_path, config, before)
    assert after.queue("new")
    assert after.queue("orders") == before.queue("orders")
    assert len(after.subscription("prices", "by-own").rules) == 2


def test_entities_may_forward_in_circles(tmp_path: Path) -> None:
    queues = [
        {"Name": "a", "Properties": {"ForwardTo": "b"}},
        {"Name": "b", "Properties": {"ForwardDeadLetteredMessagesTo": "a"}},
    ]
    catalogue = made(tmp_path, config_of(Queues=queues))
    assert (catalogue.queue("a").forward_to, catalogue.queue("b").forward_dead_lettered_messages_to) == ("b", "a")


def test_a_name_with_slashes_and_tildes_is_itself(tmp_path: Path) -> None:
    catalogue = made(tmp_path, config_of(Queues=[{"Name": "a/b~c"}]))
    assert catalogue.queue("a/b~c")


def test_every_error_is_reported_with_its_place(tmp_path: Path) -> None:
    config = config_of(
        Queues=[
            {"Name": "ok"},
            {"Properties": {"LockDuration": "PT9M"}},
            {"Name": "a", "Properties": {"LockDuration": "PT9M", "MaxDeliveryCount": "many", "LockDuraton": "PT1M"}},
            {"Name": "bad name!"},
            {"Name": "OK"},
            {"Name": "lost", "Properties": {"ForwardTo": "nowhere"}},
        ],
        Topics=[
            {
                "Name": "t",
                "Subscriptions": [
                    {
                        "Name": "s",
                        "Properties": {"RequiresSession": 1},
                        "Rules": [
                            {"Name": "r1", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}}},
                            {"Name": "r2", "Properties": {"FilterType": "True"}},
                            {"Name": "r3", "Properties": {"FilterType": "Correlation"}},
                            {
                                "Name": "r4",
                                "Properties": {
                                    "FilterType": "Correlation",
                                    "CorrelationFilter": {"Colour": "red"},
                                    "Action": {"SqlExpression": "DROP"},
                                },
                            },
                        ],
                    }
                ],
            },
        ],
        Exchanges=[],
    )
    found = wrong(tmp_path, config)
    rules = f"{PLACE}.Topics[0].Subscriptions[0].Rules"
    assert set(found) == {
        f"{PLACE}.Exchanges",
        f"{PLACE}.Queues[1].Name",
        f"{PLACE}.Queues[1].Properties.LockDuration",
        f"{PLACE}.Queues[2].Properties.LockDuration",
        f"{PLACE}.Queues[2].Properties.MaxDeliveryCount",
        f"{PLACE}.Queues[2].Properties.LockDuraton",
        f"{PLACE}.Queues[3]",
        f"{PLACE}.Queues[4].Name",
        f"{PLACE}.Topics[0].Subscriptions[0].Properties.RequiresSession",
        f"{rules}[0].Properties.SqlFilter",
        f"{rules}[1].Properties.FilterType",
        f"{rules}[2].Properties",
        f"{rules}[3].Properties.CorrelationFilter",
        f"{rules}[3].Properties.Action",
    }
    assert found[f"{PLACE}.Queues[2].Properties.LockDuraton"] == "The member is unknown. Did you mean 'LockDuration'?"
    assert found[f"{PLACE}.Queues[4].Name"] == f"'OK' is in the file twice: see {PLACE}.Queues[0]."
    assert found[f"{PLACE}.Queues[1].Name"] == "The name is missing."
    del config["UserConfig"]["Namespaces"][0]["Topics"]
    del config["UserConfig"]["Namespaces"][0]["Exchanges"]
    namespace_of(config)["Queues"] = [namespace_of(config)["Queues"][5]]
    assert "'nowhere' does not exist" in wrong(tmp_path, config)[f"{PLACE}.Queues[0].Properties.ForwardTo"]


@pytest.mark.parametrize(
    ("content", "path", "said"),
    [
        ("[]", "", "The configuration is array. Not an object."),
        ("{}", "", "The member 'UserConfig' is missing."),
        ({"UserConfig": {}}, "UserConfig.Namespaces", "The file has 0 namespaces. A broker is exactly one namespace."),
        ({"UserConfig": 5}, "UserConfig", "The member is int. Not an object."),
        ({"Users": {}}, "Users", "The member is unknown. There are UserConfig."),
        ({"UserConfig": {"Namespaces": {}}}, "UserConfig.Namespaces", "The member is object. Not a list."),
        ({"UserConfig": {"Namespaces": [5]}}, "UserConfig.Namespaces[0]", "The member is int. Not an object."),
        ({"UserConfig": {"Namespaces": [{}]}}, f"{PLACE}.Name", "The name is missing."),
        (
            {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}},
            "UserConfig.Namespaces",
            "The file has 2 namespaces. A broker is exactly one namespace.",
        ),
        (config_of(Queues=[{"Name": 5}]), f"{PLACE}.Queues[0].Name", "The name 5 is not a string."),
        (config_of(Queues=[7]), f"{PLACE}.Queues[0]", "The member is int. Not an object."),
        (config_of(Queues=[{"Name": "a", "Properties": []}]), f"{PLACE}.Queues[0].Properties", "The member is array."),
        (
            {"UserConfig": {"Namespaces": [{"Name": "a"}], "Logging": {"Type": 5}}},
            "UserConfig.Logging.Type",
            "The value is int. Not a text.",
        ),
        ("{", "", "It is not JSON: line 1, column 2"),
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_rejected_with_the_place(tmp_path: Path, content: Any, path: str, said: str) -> None:
    assert said in wrong(tmp_path, content)[path]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match=r"Configuration file '.*none\.json': It cannot be read: No such file"):
        EntityFile.read(tmp_path / "none.json", WHAT, read_config)


def test_a_property_that_the_tier_does_not_allow_is_reported_with_its_place(tmp_path: Path) -> None:
    file = file_of(tmp_path, SAMPLE)
    with pytest.raises(FileRefused) as caught:
        file.added_to(Catalogue(namespace=Namespace(tier=Tier.BASIC)), 5)
    assert [problem.path for problem in caught.value.problems] == [
        f"{PLACE}.Queues[0].Properties.RequiresDuplicateDetection",
        f"{PLACE}.Topics[0]",
    ]


def test_a_name_that_another_entity_has_is_an_error(tmp_path: Path) -> None:
    """An existing entity stays, whatever its kind. Subscriptions that the file adds to it then have no topic."""
    before = Catalogue().create(Queue(name="prices"), 5)
    with pytest.raises(FileRefused) as caught:
        made(tmp_path, SAMPLE, before)
    assert {problem.text for problem in caught.value.problems} == {"The messaging entity 'prices' could not be found."}


NAMES = ["UserConfig", "Namespaces", "Name", "Queues", "Topics", "Subscriptions", "Rules", "Properties", "Logging"]
MORE = ["FilterType", "SqlFilter", "CorrelationFilter", "Action", "LockDuration", "SqlExpression", "Label", "Type"]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "PT5S", "a", "Sql", "Correlation", "PT1M"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES + MORE), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_any_content_is_read_or_rejected(content: Any, inner: Any) -> None:
    for each in (content, {"UserConfig": content}, config_of(Queues=[inner], Topics=[content])):
        problems = Problems()
        wanted = read_config(each, problems)
        kinds = {entity.kind for entity in wanted.entities}
        assert kinds <= {Queue, Topic, Subscription}
