"""Translates the entities of a catalogue into policies for the store."""

from __future__ import annotations

from oncebus.engine.store import Kind, Policy
from oncebus.model.entities import Catalogue, Entity, Queue, Topic


def policies_of(catalogue: Catalogue) -> dict[int, Policy]:
    """Return a policy for every queue, topic and subscription, by id."""
    return {entity.id: _policy(catalogue, entity) for entity in catalogue.entities.values()}


def _policy(catalogue: Catalogue, entity: Entity) -> Policy:
    if isinstance(entity, Topic):
        return Policy(kind=Kind.TOPIC, partitioned=entity.enable_partitioning)
    forward = catalogue.forward_target(entity.forward_to)
    forward_dead_letters = catalogue.forward_target(entity.forward_dead_lettered_messages_to)
    source = entity if isinstance(entity, Queue) else catalogue.topic_of(entity)
    return Policy(
        kind=Kind.QUEUE if isinstance(entity, Queue) else Kind.SUBSCRIPTION,
        lock_duration=entity.lock_duration,
        max_delivery_count=entity.max_delivery_count,
        dead_letter_on_expiry=entity.dead_lettering_on_message_expiration,
        requires_session=entity.requires_session,
        forward_to=forward.id if forward else None,
        forward_dead_letters_to=forward_dead_letters.id if forward_dead_letters else None,
        partitioned=source.enable_partitioning,
    )
