"""Resources survive being written and read; any other request is answered or rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncebus.engine.store import Counts
from oncebus.model.entities import (
    Catalogue,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from oncebus.protocols.arm import reading, resources
from oncebus.protocols.arm.paths import ResourceKind, ResourceName, is_resource, resource_of
from oncebus.protocols.management.reading import read_description
from oncebus.protocols.management.rules import read_rule
from oncebus.protocols.management.runtime import Runtime
from oncebus.values.errors import OncebusError
from tests.model.entities.catalogues import QUEUES, SUBSCRIPTIONS, TOPICS
from tests.properties import examples

SCOPE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus"
TARGET = ResourceName(ResourceKind.ENTITY, Queue, SCOPE, "oncebus")
RUNTIME = Runtime(Counts(), 0, 0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SOME = TEXTS.filter(bool)
NULLABLE = st.none() | SOME
EXPRESSIONS = SOME.filter(lambda text: text not in ("1=1", "1=0"))
PROPERTIES = st.dictionaries(
    TEXTS,
    st.one_of(
        TEXTS, st.booleans(), st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
    ),
).map(lambda found: tuple(found.items()))
FILTERS: st.SearchStrategy[Filter] = st.one_of(
    st.builds(SqlFilter, EXPRESSIONS, st.just(()), st.integers(1, 99), st.booleans()),
    st.builds(TrueFilter),
    st.builds(FalseFilter),
    st.builds(CorrelationFilter, label=NULLABLE, session_id=NULLABLE, to=NULLABLE, properties=PROPERTIES),
)
ACTIONS = st.none() | st.builds(SqlAction, SOME, st.just(()), st.integers(1, 99), st.booleans())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "properties",
                    "lockDuration",
                    "status",
                    "sku",
                    "name",
                    "rights",
                    "sqlFilter",
                    "sqlExpression",
                    "filterType",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.one_of(QUEUES, TOPICS, SUBSCRIPTIONS),
    NULLABLE,
    NULLABLE,
)
def test_an_entity_survives_a_round_trip(
    entity: Queue | Topic | Subscription, text: str | None, to: str | None
) -> None:
    written = replace(entity, user_metadata=text)
    if not isinstance(written, Topic):
        written = replace(written, forward_to=to)
    topic = Topic(name=written.topic) if isinstance(written, Subscription) else None
    catalogue = Catalogue(entities={topic.name.lower(): topic} if topic else {})
    body = json.dumps(resources.entity(written, RUNTIME, catalogue, TARGET)).encode()
    properties = reading.properties_of(reading.read_object(body))
    description = read_description(properties, type(written))
    changes: dict[str, Any] = {"max_size_in_megabytes" if isinstance(written, Topic) else "max_delivery_count": 7}
    other = replace(written, **changes)
    again: Queue | Topic | Subscription = description.apply_replacing(other)
    assert again == written


@given(FILTERS, ACTIONS)
def test_a_rule_survives_a_round_trip(chosen: Filter, action: SqlAction | None) -> None:
    rule = Rule("mine", chosen, action)
    written = json.dumps(resources.rule(rule, Subscription(topic="t", name="s"), TARGET)).encode()
    assert read_rule(reading.properties_of(reading.read_object(written)), "mine") == rule


@examples(300)
@given(JSON)
def test_any_request_is_answered_or_rejected(content: object) -> None:
    for read in (
        lambda body: read_description(reading.properties_of(body), Queue),
        lambda body: read_description(reading.properties_of(body), Subscription),
        lambda body: read_rule(reading.properties_of(body), "x"),
        reading.read_tier,
        reading.read_rule_rights,
        reading.read_new_key,
        reading.read_name,
    ):
        try:
            read(reading.read_object(json.dumps(content).encode()))
        except OncebusError as error:
            assert str(error)


@given(
    st.lists(
        st.sampled_from(
            ["queues", "topics", "subscriptions", "rules", "authorizationRules", "listKeys", "a", "%2F", ""]
        )
    )
)
def test_any_path_below_the_provider_is_a_resource_or_not_found(segments: list[str]) -> None:
    path = "/subscriptions/s/resourceGroups/g/providers/microsoft.servicebus/namespaces/oncebus"
    raw = "/".join([path, *segments]).encode()
    assert is_resource(raw)
    try:
        target = resource_of(raw)
    except OncebusError as error:
        assert "There is no resource at the path" in str(error)
    else:
        assert target.namespace == "oncebus"
