from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncebus.model.entities import Catalogue, CorrelationFilter, EntityStatus, SqlAction, SqlFilter, TrueFilter
from oncebus.programs.serve.entities_file import WHAT, read_entities
from oncebus.protocols.management.entity_file import EntityFile
from oncebus.protocols.management.problems import FileRefused
from oncebus.values.durations import HOUR, MINUTE

RULED = {"type": "subscription", "topic": "t", "name": "s"}


def read(folder: Path, content: object) -> EntityFile:
    path = folder / "entities.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return EntityFile.read(path, WHAT, read_entities)


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


def test_a_queue_may_have_a_detection_key(tmp_path: Path) -> None:
    keyed = {"name": "orders", "requiresDuplicateDetection": True, "oncebusDetectionKey": "property:order"}
    assert read(tmp_path, [keyed]).added_to(Catalogue(), 5).queue("orders").detection_key == "property:order"
    for wrong, said in (
        ({**keyed, "oncebusDetectionKey": "x"}, "not one of messageId, body, property:NAME."),
        ({**keyed, "requiresDuplicateDetection": False}, "needs duplicate detection, which is off."),
        ({**keyed, "detectionKey": "body"}, "detectionKey"),
    ):
        with pytest.raises(FileRefused) as caught:
            read(tmp_path, [wrong]).added_to(Catalogue(), 5)
        assert said in str(caught.value)
        assert len(caught.value.problems) == 1


def test_a_subscription_may_have_rules(tmp_path: Path) -> None:
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


def test_existing_entities_stay_as_they_are(tmp_path: Path) -> None:
    before = read(tmp_path, [{"name": "a", "maxDeliveryCount": 3}]).added_to(Catalogue(), 0)
    again = read(tmp_path, [{"name": "A", "maxDeliveryCount": 7}])
    assert again.added_to(before, 0) is before


def test_a_subscription_may_have_no_rules(tmp_path: Path) -> None:
    content = [{"type": "topic", "name": "t"}, RULED | {"rules": []}]
    assert read(tmp_path, content).added_to(Catalogue(), 0).subscription("t", "s").rules == ()


def test_a_queue_may_forward_to_a_later_one_and_the_first_of_two_counts(tmp_path: Path) -> None:
    content = """[
        // Its target comes later in the list.
        {"name": "a", "forwardTo": "b"},
        {"name": "b", "maxDeliveryCount": 3}, {"name": "B", "maxDeliveryCount": 7}]"""
    file = read(tmp_path, content)
    catalogue = file.added_to(Catalogue(), 0)
    assert catalogue.queue("a").forward_to == "b"
    assert catalogue.queue("b").max_delivery_count == 3
    assert file.warnings == ("[2]: 'B' is in the file twice. The first one is used: [1].",)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    rules = [{"name": "one", "sqlFilter": "= ="}, {"name": "two", "action": "SET"}]
    content = [{"name": "a", "lockDuration": "PT1H", "maxDeliveryCount": 0}, {"type": "topic", "name": "t"}]
    with pytest.raises(FileRefused) as refused:
        read(tmp_path, [*content, RULED | {"rules": rules}]).added_to(Catalogue(), 0)
    places = [problem.path for problem in refused.value.problems]
    assert places == ["[0].lockDuration", "[0].maxDeliveryCount", "[2].rules[0]", "[2].rules[1]"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "It is not JSON: line 1, column 2: Expecting property name enclosed in double quotes."),
        ('{"a": 1}', "It is not a list of entities."),
        ("[1]", "[0]: The member is int. Not an object."),
        (
            [{"type": "exchange", "name": "a"}],
            "[0].type: The value 'exchange' is not one of queue, ",
        ),
        ([{"name": "a"}, {"type": "topic"}], "[1].name: The name is missing."),
        ([{"type": "subscription", "name": "s"}], "[0].topic: The name is missing."),
        ([{"name": "a", "colour": 1}], "[0].colour: The member is unknown. There are type, name, "),
        (
            [{"name": "a", "lockDurations": 1}],
            "[0].lockDurations: The member is unknown. Did you mean 'lockDuration",
        ),
        ([{"name": "a", "id": 1}], "[0].id: The member is unknown."),
        ([{"name": "a", "rules": []}], "[0].rules: The member is unknown."),
        ([{"name": "a", "lockDuration": "soon"}], "[0].lockDuration: The value 'soon' of the property 'lockDuration'"),
        (
            [{"name": "a", "requiresSession": "yes"}],
            "[0].requiresSession: The property 'requiresSession' has value 'yes'. Not true or false.",
        ),
        ([{"name": "a", "maxDeliveryCount": True}], "[0].maxDeliveryCount: The property 'maxDeliveryCount' has value"),
        ([{"name": "a", "status": "gone"}], "Not one of Active, Disabled, SendDisabled, ReceiveDisabled."),
        ([{"name": ""}], "[0].name: The name is missing."),
        ([{"name": 3}], "[0].name: The name 3 is not a string."),
        ([RULED | {"rules": [{"sqlFilter": "a", "correlationFilter": {}}]}], "[0].rules[0]: A rule has a 'sqlFilter'"),
        (
            [RULED | {"rules": [{"filter": "a"}]}],
            "[0].rules[0].filter: The member is unknown. Did you mean",
        ),
        ([RULED | {"rules": 5}], "[0].rules: The member is int. Not a list."),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(FileRefused) as refused:
        read(tmp_path, content)
    assert said in str(refused.value)
    assert "entities.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match=r"none.json': It cannot be read: No such file"):
        EntityFile.read(tmp_path / "none.json", WHAT, read_entities)


def test_limits_of_the_service_are_refused_with_its_texts(tmp_path: Path) -> None:
    content = [
        {"name": "a", "requiresDuplicateDetection": True, "duplicateDetectionHistoryTimeWindow": "P25D"},
    ]
    with pytest.raises(FileRefused, match=r"\[0\].duplicateDetectionHistoryTimeWindow: .*between 00:00:20 and 7"):
        read(tmp_path, content).added_to(Catalogue(), 0)
