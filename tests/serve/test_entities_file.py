from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncebus.durations import HOUR, MINUTE
from oncebus.entities import Catalogue, CorrelationFilter, EntityStatus, SqlAction, SqlFilter, TrueFilter
from oncebus.serve.entities_file import EntitiesFile, EntitiesFileError


def read(folder: Path, content: object) -> EntitiesFile:
    path = folder / "entities.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return EntitiesFile.read(path)


def test_entities_are_described_by_the_services_names_in_any_case(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        [
            {
                "type": "Queue",
                "name": "orders",
                "requiresDuplicateDetection": True,
                "duplicateDetectionHistoryTimeWindow": "PT1H",
                "LockDuration": "00:02:00",
                "MaxSizeInMegabytes": 2048,
                "status": "sendDisabled",
                "forwardTo": None,
            },
            {"name": "plain"},
            {"type": "topic", "name": "prices"},
            {"type": "subscription", "topic": "prices", "name": "all"},
        ],
    )
    catalogue = file.added_to(Catalogue(), 5)
    orders = catalogue.queue("orders")
    assert orders.window == HOUR
    assert orders.lock_duration == 2 * MINUTE
    assert orders.max_size_in_megabytes == 2048
    assert orders.status is EntityStatus.SEND_DISABLED
    assert orders.created_at == 5
    assert catalogue.queue("plain").window is None
    assert [rule.filter for rule in catalogue.subscription("prices", "all").rules] == [TrueFilter()]


def test_a_subscription_may_bring_its_rules(tmp_path: Path) -> None:
    rules = [
        {"name": "above", "sqlFilter": {"sqlExpression": "price > 100"}, "action": "SET urgent = true"},
        {"name": "for-me", "correlationFilter": {"correlationId": "me", "properties": {"Colour": "red"}}},
        {"name": "rest"},
    ]
    content = [{"type": "topic", "name": "t"}, {"type": "subscription", "topic": "t", "name": "s", "rules": rules}]
    made = read(tmp_path, content).added_to(Catalogue(), 0).subscription("t", "s").rules
    assert [rule.name for rule in made] == ["above", "for-me", "rest"]
    assert made[0].filter == SqlFilter("price > 100")
    assert made[0].action == SqlAction("SET urgent = true")
    assert made[1].filter == CorrelationFilter(correlation_id="me", properties=(("Colour", "red"),))
    assert made[2].filter == TrueFilter()


def test_what_exists_is_left_as_it_is(tmp_path: Path) -> None:
    before = read(tmp_path, [{"name": "a", "maxDeliveryCount": 3}]).added_to(Catalogue(), 0)
    again = read(tmp_path, [{"name": "A", "maxDeliveryCount": 7}])
    assert again.added_to(before, 0) is before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ('{"a": 1}', "is not a list"),
        ("[1]", "entity 1: An entity is not an object: 1."),
        ([{"type": "exchange", "name": "a"}], "entity 1: Property 'type' is not one of queue, topic, subscription."),
        ([{"name": "a"}, {"type": "topic"}], "entity 2: Property 'name' is missing."),
        ([{"type": "subscription", "name": "s"}], "Property 'topic' is missing."),
        ([{"name": "a", "colour": 1}], "Property 'colour' is not known."),
        ([{"name": "a", "id": 1}], "Property 'id' is not known."),
        ([{"name": "a", "lockDuration": "soon"}], "is not a duration"),
        ([{"name": "a", "requiresSession": "yes"}], "Property 'requiresSession' has value 'yes'. Not true or false."),
        ([{"name": "a", "maxDeliveryCount": True}], "Not a whole number."),
        ([{"name": "a", "status": "gone"}], "Not one of Active, Disabled, SendDisabled, ReceiveDisabled."),
        ([{"name": ""}], "Property 'name' has value ''. Not a text."),
        (
            [
                {
                    "type": "subscription",
                    "topic": "t",
                    "name": "s",
                    "rules": [{"sqlFilter": "a", "correlationFilter": {}}],
                }
            ],
            "not both",
        ),
        ([{"type": "subscription", "topic": "t", "name": "s", "rules": [{"filter": "a"}]}], "'filter' of a rule"),
    ],
)
def test_a_bad_file_is_refused_and_the_error_names_what(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(EntitiesFileError) as refused:
        read(tmp_path, content)
    assert said in str(refused.value)
    assert "entities.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EntitiesFileError, match=r"none.json' cannot be read: No such file"):
        EntitiesFile.read(tmp_path / "none.json")


def test_what_the_service_refuses_is_refused_with_its_words(tmp_path: Path) -> None:
    content = [
        {"name": "a", "requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": "P25D"},
    ]
    with pytest.raises(EntitiesFileError, match=r"'a': .*between 00:00:20 and 7.00:00:00"):
        read(tmp_path, content).added_to(Catalogue(), 0)
