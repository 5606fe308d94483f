"""Any sequence of changes, valid or not, preserves the invariants of a catalogue."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncebus.model.entities import (
    Catalogue,
    EntityError,
    FalseFilter,
    Namespace,
    Queue,
    Rule,
    Subscription,
    Tier,
    Topic,
)
from oncebus.model.entities.catalogue_json import catalogue_from_json, catalogue_to_json
from oncebus.values.durations import DAY, MINUTE
from tests.properties import examples

NAMES = st.sampled_from(["a", "A", "b", "B", "c/d", "C/D", "not allowed"])
TARGETS = st.sampled_from([None, None, "a", "B", "c/d", "a/Subscriptions/b"])
RULE_NAMES = st.sampled_from(["$Default", "$DEFAULT", "r", "R"])
FLAGS = st.booleans()
WINDOWS = st.sampled_from([10 * MINUTE, DAY, 8 * DAY])


class Changes(RuleBasedStateMachine):
    @initialize(tier=st.sampled_from(Tier))
    def begin(self, tier: Tier) -> None:
        self.catalogue = Catalogue(namespace=Namespace("ns", tier))
        self.now = 0
        self.paths: dict[int, str] = {}
        self.flags: dict[int, tuple[object, ...]] = {}
        self.deleted: set[str] = set()

    def change(self, make: Callable[[], Catalogue]) -> None:
        self.now += 1
        before, text = self.catalogue, catalogue_to_json(self.catalogue)
        try:
            self.catalogue = make()
        except EntityError as error:
            assert str(error)
        else:
            assert self.catalogue.version == before.version + 1
            assert self.catalogue.next_id - before.next_id in (0, 1)
            self.deleted |= before.entities.keys() - self.catalogue.entities.keys()
        assert catalogue_to_json(before) == text, "a catalogue never changes"

    @rule(name=NAMES, detects=FLAGS, session=FLAGS, window=WINDOWS, to=TARGETS, dead_to=TARGETS, is_new=FLAGS)
    def queue(
        self, name: str, detects: bool, session: bool, window: int, to: str | None, dead_to: str | None, is_new: bool
    ) -> None:
        queue = Queue(
            name=name,
            requires_duplicate_detection=detects,
            requires_session=session,
            duplicate_detection_history_time_window=window,
            forward_to=to,
            forward_dead_lettered_messages_to=dead_to,
        )
        make = self.catalogue.create if is_new else self.catalogue.update
        self.change(lambda: make(queue, self.now))

    @rule(name=NAMES, partitions=FLAGS, is_new=FLAGS)
    def topic(self, name: str, partitions: bool, is_new: bool) -> None:
        topic = Topic(name=name, enable_partitioning=partitions)
        make = self.catalogue.create if is_new else self.catalogue.update
        self.change(lambda: make(topic, self.now))

    @rule(topic=NAMES, name=NAMES, session=FLAGS, to=TARGETS, is_new=FLAGS)
    def subscription(self, topic: str, name: str, session: bool, to: str | None, is_new: bool) -> None:
        subscription = Subscription(topic=topic, name=name, requires_session=session, forward_to=to)
        make = self.catalogue.create if is_new else self.catalogue.update
        self.change(lambda: make(subscription, self.now))

    @rule(topic=NAMES, subscription=NAMES, name=RULE_NAMES, how=st.integers(0, 2))
    def filter_rule(self, topic: str, subscription: str, name: str, how: int) -> None:
        made = Rule(name, FalseFilter())
        self.change(
            [
                lambda: self.catalogue.create_rule(topic, subscription, made, self.now),
                lambda: self.catalogue.update_rule(topic, subscription, made),
                lambda: self.catalogue.delete_rule(topic, subscription, name),
            ][how]
        )

    @rule(name=NAMES, subscription=NAMES, how=st.integers(0, 2))
    def delete(self, name: str, subscription: str, how: int) -> None:
        self.change(
            [
                lambda: self.catalogue.delete(Queue(name=name)),
                lambda: self.catalogue.delete(Topic(name=name)),
                lambda: self.catalogue.delete(Subscription(topic=name, name=subscription)),
            ][how]
        )

    @invariant()
    def ids_are_never_used_again_and_choices_of_creation_stay(self) -> None:
        for entity in self.catalogue.entities.values():
            assert 0 < entity.id < self.catalogue.next_id
            assert self.paths.setdefault(entity.id, entity.path) == entity.path
            chosen = (
                type(entity),
                getattr(entity, "requires_duplicate_detection", None),
                getattr(entity, "requires_session", None),
                getattr(entity, "enable_partitioning", None),
                entity.created_at,
            )
            assert self.flags.setdefault(entity.id, chosen) == chosen
            assert self.catalogue.entity(entity.id) is entity
        assert len({entity.id for entity in self.catalogue.entities.values()}) == len(self.catalogue.entities)

    @invariant()
    def entities_are_where_their_names_say(self) -> None:
        for key, entity in self.catalogue.entities.items():
            assert key == entity.path.lower()
            assert " " not in key

    @invariant()
    def subscriptions_belong_to_a_topic_and_rules_have_names_of_their_own(self) -> None:
        listed = [each for topic in self.catalogue.topics for each in self.catalogue.subscriptions_of(topic)]
        held = [each for each in self.catalogue.entities.values() if isinstance(each, Subscription)]
        assert sorted(each.id for each in listed) == sorted(each.id for each in held)
        for subscription in held:
            topic = self.catalogue.topic_of(subscription)
            assert (topic.id, topic.name) == (subscription.topic_id, subscription.topic)
            names = [rule.name.lower() for rule in subscription.rules]
            assert len(set(names)) == len(names)

    @invariant()
    def forwarding_leads_somewhere_unless_that_was_deleted(self) -> None:
        for entity in self.catalogue.entities.values():
            if isinstance(entity, Topic):
                continue
            for path in (entity.forward_to, entity.forward_dead_lettered_messages_to):
                if path is None:
                    continue
                assert self.catalogue.forward_target(path) is not None or path.lower() in self.deleted

    @invariant()
    def the_tier_is_kept(self) -> None:
        tier = self.catalogue.namespace.tier
        if tier is Tier.BASIC:
            assert not self.catalogue.topics
            assert not any(
                queue.window or queue.forward_to or queue.requires_session for queue in self.catalogue.queues
            )
        if tier is Tier.PREMIUM:
            assert not any(topic.enable_partitioning for topic in self.catalogue.topics)
        for queue in self.catalogue.queues:
            assert queue.duplicate_detection_history_time_window <= 7 * DAY

    @invariant()
    def it_can_be_written_and_read(self) -> None:
        assert catalogue_from_json(catalogue_to_json(self.catalogue)) == self.catalogue


TestChanges = Changes.TestCase
TestChanges.settings = examples(40, stateful_step_count=40)
