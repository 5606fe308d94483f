"""Deploying an exported template makes an equal namespace."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.access import AuthorizationRule, Right
from oncebus.model.entities import (
    NO_LIMIT,
    Catalogue,
    CorrelationFilter,
    Entity,
    EntityStatus,
    FalseFilter,
    Namespace,
    Queue,
    Rule,
    SqlAction,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from oncebus.protocols.management.documents import parse_document
from oncebus.protocols.templates.export import export
from oncebus.values.durations import DAY, MINUTE, SECOND
from tests.properties import examples

from .template_scenes import ROOT, changes_nothing, planned

SPANS = st.one_of(st.just(NO_LIMIT), st.integers(5 * MINUTE, 100 * DAY))
WORDS = st.text("ab[]' ö", min_size=1, max_size=6)
COMMON: dict[str, Any] = {
    "default_message_time_to_live": SPANS,
    "auto_delete_on_idle": SPANS,
    "status": st.sampled_from(EntityStatus),
    "user_metadata": st.none() | WORDS,
    "enable_batched_operations": st.booleans(),
}
DELIVERY: dict[str, Any] = {
    "lock_duration": st.integers(SECOND, 5 * MINUTE),
    "max_delivery_count": st.integers(1, 2000),
    "dead_lettering_on_message_expiration": st.booleans(),
    "requires_session": st.booleans(),
}
SIZED: dict[str, Any] = {
    "requires_duplicate_detection": st.booleans(),
    "duplicate_detection_history_time_window": st.integers(20 * SECOND, 7 * DAY),
    "max_size_in_megabytes": st.sampled_from([1024, 2048, 5120]),
    "enable_partitioning": st.booleans(),
}
EXPRESSIONS = st.sampled_from(["a = 1", "[a b] = 'x' AND 1 = [c]", "colour IN ('red', 'blue')"])
FILTERS = st.one_of(
    st.builds(SqlFilter, EXPRESSIONS),
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(
        CorrelationFilter,
        label=WORDS,
        properties=st.lists(
            st.tuples(WORDS, st.one_of(WORDS, st.booleans(), st.integers(-99, 99))),
            max_size=2,
            unique_by=lambda pair: pair[0].lower(),
        ).map(tuple),
    ),
)
RULES = st.lists(
    st.builds(Rule, st.sampled_from(["$Default", "one", "two"]), FILTERS, st.none() | st.just(SqlAction("SET a = 1"))),
    min_size=1,
    unique_by=lambda rule: rule.name,
)


@st.composite
def namespaces(draw: st.DrawFn) -> Catalogue:
    """Draw valid namespaces whose entities forward to each other."""
    catalogue = Catalogue(namespace=Namespace("bus"))
    queues = draw(st.lists(st.sampled_from(["a", "b/c", "d"]), unique=True))
    for name in queues:
        catalogue = catalogue.create(draw(st.builds(Queue, name=st.just(name), **COMMON, **DELIVERY, **SIZED)), 5)
    for name in draw(st.lists(st.sampled_from(["news", "x/y"]), unique=True)):
        catalogue = catalogue.create(draw(st.builds(Topic, name=st.just(name), **COMMON, **SIZED)), 5)
        for each in draw(st.lists(st.sampled_from(["all", "some"]), unique=True)):
            made = draw(st.builds(Subscription, topic=st.just(name), name=st.just(each), **COMMON, **DELIVERY))
            catalogue = catalogue.create(made, 5, draw(RULES))
    for entity in list(catalogue.entities.values()):
        if queues and not isinstance(entity, Topic):
            catalogue = _forwarding(draw, catalogue, entity, queues)
    return catalogue


def _forwarding(draw: st.DrawFn, catalogue: Catalogue, entity: Queue | Subscription, queues: list[str]) -> Catalogue:
    targets = st.none() | st.sampled_from(queues).filter(lambda name: name != entity.path)
    dead = draw(targets)
    to = None if entity.requires_session else draw(targets)
    if isinstance(entity, Queue):
        return catalogue.update(replace(entity, forward_to=to, forward_dead_lettered_messages_to=dead), 5)
    return catalogue.update(replace(entity, forward_to=to, forward_dead_lettered_messages_to=dead), 5)


def comparable(catalogue: Catalogue) -> dict[str, Entity]:
    """Return the entities without the fields that each creation sets anew."""
    found: dict[str, Entity] = {}
    for path, entity in catalogue.entities.items():
        plain = replace(entity, id=0, created_at=0, updated_at=0)
        if isinstance(plain, Subscription):
            rules = sorted((replace(rule, created_at=0) for rule in plain.rules), key=lambda rule: rule.name)
            plain = replace(plain, topic_id=0, rules=tuple(rules))
        found[path] = plain
    return found


@examples(30)
@given(namespaces())
def test_a_template_makes_the_namespace_that_it_was_written_from(catalogue: Catalogue) -> None:
    written = export(catalogue, [ROOT])
    assert written.warnings == []
    content = parse_document(json.dumps(written.template))
    made = planned(content, Catalogue(namespace=Namespace("other")))
    assert comparable(made.after) == comparable(catalogue)
    assert changes_nothing(planned(content, catalogue))


def test_a_detection_key_is_exported_as_an_extension_with_a_warning() -> None:
    keyed = Queue(name="q", requires_duplicate_detection=True, detection_key="body")
    catalogue = Catalogue(namespace=Namespace("bus")).create(keyed, 5).create(Queue(name="plain"), 5)
    written = export(catalogue, [ROOT])
    assert written.warnings == ["'q' has the property 'oncebusDetectionKey', an extension that Azure does not have."]
    assert json.dumps(written.template).count("oncebusDetectionKey") == 1
    made = planned(parse_document(json.dumps(written.template)), Catalogue(namespace=Namespace("other")))
    assert comparable(made.after) == comparable(catalogue)
    # A template that does not know the property keeps it.
    del next(each for each in written.template["resources"] if "'q'" in each["name"] or each["name"].endswith("q')]"))[
        "properties"
    ]["oncebusDetectionKey"]
    assert changes_nothing(planned(parse_document(json.dumps(written.template)), catalogue))


def test_the_tier_and_authorization_rules_are_exported_without_keys() -> None:
    rule = AuthorizationRule("send", frozenset({Right.SEND}), "secret-one", "secret-two")
    catalogue = Catalogue(namespace=Namespace("bus", Tier.PREMIUM))
    catalogue = catalogue.create(Queue(name="a", authorization_rules=(rule,), max_message_size_in_kilobytes=2048), 5)
    written = export(catalogue, [ROOT, replace(rule, name="all")])
    assert "secret" not in json.dumps(written.template)
    made = planned(written.template)
    assert made.after.namespace.tier is Tier.PREMIUM
    assert [each.rights for each in made.after.queue("a").authorization_rules] == [rule.rights]
    assert [each.name for each in made.changed_authorizations] == ["all"]
    assert changes_nothing(planned(written.template, catalogue, rules=[ROOT, replace(rule, name="all")]))


def test_the_name_of_the_namespace_is_a_parameter() -> None:
    written = export(Catalogue(namespace=Namespace("bus")).create(Queue(name="a"), 5), [])
    assert planned(written.template).wanted.namespace == "bus"
    assert planned(written.template, namespaceName="prod").wanted.namespace == "prod"


def test_export_warns_about_what_a_template_cannot_express() -> None:
    catalogue = Catalogue().create(Queue(name="a~b"), 5).create(Topic(name="t"), 5)
    catalogue = catalogue.create(Subscription(topic="t", name="none"), 5, [])
    day = CorrelationFilter(properties=(("day", datetime(2026, 1, 1, tzinfo=UTC)),))
    rules = [Rule("typed", day), Rule("given", SqlFilter("a = @x", (("@x", 1),)))]
    catalogue = catalogue.create(Subscription(topic="t", name="typed"), 5, rules)
    assert export(catalogue, []).warnings == [
        "'a~b': a tilde in a template means a slash, so deploying the template changes the name.",
        "'t/Subscriptions/none' has no rules. When deployed, it gets a rule that matches all messages.",
        "'t/Subscriptions/typed': the parameters and typed values of rule 'typed' are left out.",
        "'t/Subscriptions/typed': the parameters and typed values of rule 'given' are left out.",
    ]


def test_forwarding_targets_come_first_unless_there_is_a_circle() -> None:
    catalogue = Catalogue()
    for name in ("a", "b", "c"):
        catalogue = catalogue.create(Queue(name=name), 5)
    for name, to in (("a", "b"), ("b", "c"), ("c", "b")):
        catalogue = catalogue.update(Queue(name=name, forward_to=to), 5)
    resources = {each["name"]: each["dependsOn"] for each in export(catalogue, []).template["resources"][1:]}
    assert [len(depends) for depends in resources.values()] == [2, 1, 1]


def test_forwarding_to_a_deleted_entity_is_left_out_with_a_warning() -> None:
    catalogue = Catalogue(namespace=Namespace("bus")).create(Queue(name="b"), 5)
    catalogue = catalogue.create(Queue(name="a", forward_to="b"), 5).delete(Queue(name="b"))
    written = export(catalogue, [ROOT])
    assert written.warnings == ["'a' forwards to 'b', which does not exist. The forwarding is left out."]
    made = planned(written.template, Catalogue(namespace=Namespace("other")))
    assert made.after.queue("a").forward_to is None
