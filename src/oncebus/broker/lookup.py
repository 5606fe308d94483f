"""Finding the entity that an operation addresses, or raising the error that the caller gets."""

from __future__ import annotations

from oncebus.broker.addresses import Address
from oncebus.entities import BadRequest, Catalogue, Entity, NotFound, Queue, Subscription, Topic, check_receiver
from oncebus.store import SubQueue


def found(catalogue: Catalogue, path: str) -> Entity:
    """Return the entity at a path. Raises `NotFound`."""
    entity = catalogue.find(path)
    if entity is None:
        raise NotFound(path)
    return entity


def sendable(catalogue: Catalogue, path: str) -> Queue | Topic:
    """Return the queue or topic at a path, in any status. Raises `NotFound`, or `BadRequest` for a subscription."""
    entity = found(catalogue, path)
    if isinstance(entity, Subscription):
        raise BadRequest(f"Messages are sent to the topic '{entity.topic}', not to its subscription '{path}'.")
    return entity


def holding(catalogue: Catalogue, address: Address) -> Queue | Subscription:
    """Return the queue or subscription at an address. Raises `NotFound`, or `BadRequest` for a topic."""
    entity = found(catalogue, address.path)
    if isinstance(entity, Topic):
        raise BadRequest(f"Messages are received from a subscription of the topic '{address.path}', not from itself.")
    return entity


def receivable(
    catalogue: Catalogue, address: Address, *, is_sessionful: bool, is_browser: bool = False
) -> Queue | Subscription:
    """Return the queue or subscription that such a receiver may open. Raises what `check_receiver` raises."""
    entity = holding(catalogue, address)
    check_receiver(
        entity,
        is_sessionful=is_sessionful,
        is_of_dead_letters=address.sub_queue is not SubQueue.MAIN,
        is_browser=is_browser,
    )
    return entity
