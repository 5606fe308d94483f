from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given

from oncebus.amqp.types import ULong
from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import BadRequest, Catalogue, CorrelationFilter, Queue, Rule, Subscription, Topic
from oncebus.model.entities.catalogue_json import (
    BadCatalogue,
    catalogue_from_json,
    catalogue_to_json,
    check_stored_form,
)
from tests.model.entities.catalogues import written_catalogues

KEYS = AuthorizationRule("all", frozenset(Right), "secret-one", "secret-two")
SOME = (
    Catalogue()
    .create(Queue(name="orders", authorization_rules=(KEYS,)), 1)
    .create(Topic(name="news"), 2)
    .create(Subscription(topic="news", name="all"), 3)
)


def reprs_of_rules(catalogue: Catalogue) -> list[str]:
    return [repr(each.rules) for each in catalogue.entities.values() if isinstance(each, Subscription)]


@given(written_catalogues())
def test_every_catalogue_comes_back_as_it_was(catalogue: Catalogue) -> None:
    text = catalogue_to_json(catalogue)
    assert text.isascii()
    back = catalogue_from_json(text)
    assert back == catalogue
    assert reprs_of_rules(back) == reprs_of_rules(catalogue), "1, 1.0 and True are equal but not the same"
    assert catalogue_to_json(back) == text


def test_nan_and_infinity_come_back() -> None:
    rule = Rule("r", CorrelationFilter(properties=(("x", math.nan), ("y", math.inf))))
    text = catalogue_to_json(SOME.create_rule("news", "all", rule, 4))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = catalogue_from_json(text).rule("news", "all", "r").filter
    assert isinstance(back, CorrelationFilter)
    (_, first), (_, second) = back.properties
    assert isinstance(first, float)
    assert math.isnan(first)
    assert second == math.inf


def test_the_text_has_the_documented_layout() -> None:
    lines = catalogue_to_json(SOME).splitlines()
    assert lines[0] == (
        '{"format": "oncebus catalogue 1", "version": 3, "namespace": "oncebus", "tier": "Standard", "next_id": 4,'
        ' "entities": ['
    )
    assert lines[1].startswith('{"is": "queue", "name": "orders", "id": 1, "default_message_time_to_live": 9223')
    assert '"rules": [{"name": "$Default", "filter": {"is": "true"}, "action": null, "created_at": 3}]' in lines[3]
    assert lines[4:] == ["]}"]


def test_a_rule_that_no_token_can_use_is_refused_without_its_key() -> None:
    [fine] = ENTITIES[0]["authorization_rules"]
    for odd in ({**fine, "name": "odd name"}, {**fine, "primary_key": "a secret"}):
        text = changed(entities=[{**ENTITIES[0], "authorization_rules": [odd]}, *ENTITIES[1:]])
        with pytest.raises(BadCatalogue) as raised:
            catalogue_from_json(text)
        assert "secret" not in str(raised.value)


def test_every_truncated_file_is_refused() -> None:
    text = catalogue_to_json(SOME).rstrip()
    for length in range(len(text)):
        with pytest.raises(BadCatalogue):
            catalogue_from_json(text[:length])


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(catalogue_to_json(SOME)), **values})


ENTITIES = json.loads(catalogue_to_json(SOME))["entities"]


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        changed(format="oncebus catalogue 2"),
        changed(tier="Gold"),
        changed(version=None),
        changed(entities=None),
        changed(entities=[{}]),
        changed(entities=[{**ENTITIES[0], "is": "stack"}]),
        changed(entities=[{**ENTITIES[0], "colour": "red"}]),
        changed(entities=[{**ENTITIES[0], "status": "Resting"}]),
        changed(entities=[ENTITIES[0], ENTITIES[0]]),
        changed(entities=[ENTITIES[0], {**ENTITIES[1], "id": 1}]),
        changed(entities=[ENTITIES[0], {**ENTITIES[1], "name": "ORDERS"}]),
        changed(next_id=3),
    ],
)
def test_a_text_that_is_not_a_catalogue_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(BadCatalogue) as raised:
        catalogue_from_json(text)
    assert "secret" not in str(raised.value)


def test_an_entity_that_could_not_be_read_back_is_refused() -> None:
    # No protocol makes such a value. If one did, its file would stop the broker.
    rule = Rule("r", CorrelationFilter(properties=(("p", ULong(2**64)),)))
    with pytest.raises(BadRequest, match="The description of 't/Subscriptions/s' cannot be stored"):
        check_stored_form(Subscription(topic="t", name="s", rules=(rule,)))
