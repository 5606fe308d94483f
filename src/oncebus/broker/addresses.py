"""Addresses that senders and receivers use: an entity, and one of its sub-queues.

The functions that look up an entity raise the error that the client gets.
"""

from __future__ import annotations

from typing import NamedTuple

from oncebus.engine.store import SubQueue
from oncebus.model.entities import BadRequest, Catalogue, Entity, NotFound, Queue, Subscription, Topic, check_receiver
from oncebus.model.entities.names import path_of_address

_SUB_QUEUES = (
    ("/$transfer/$deadletterqueue", SubQueue.TRANSFER_DEAD_LETTER),
    ("/$deadletterqueue", SubQueue.DEAD_LETTER),
)


class Address(NamedTuple):
    """The path of an entity, as the caller wrote it, and one of the entity's sub-queues."""

    path: str
    sub_queue: SubQueue = SubQueue.MAIN


def parse_address(text: str) -> Address:
    """Parse an address, with or without scheme and host. The names of sub-queues are not case-sensitive."""
    path = path_of_address(text)
    lowered = path.lower()
    for ending, sub_queue in _SUB_QUEUES:
        if lowered.endswith(ending):
            return Address(path[: -len(ending)], sub_queue)
    return Address(path)


def sent_path(address: Address) -> str:
    """Return the path to which messages for an address are sent. Raises `BadRequest` for dead letters."""
    if address.sub_queue is not SubQueue.MAIN:
        raise BadRequest(f"Messages cannot be sent to the dead letters of '{address.path}'.")
    return address.path


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
        raise BadRequest(
            f"Messages are received from a subscription of the topic '{address.path}', not from the topic itself."
        )
    return entity


def receivable(
    catalogue: Catalogue, address: Address, *, is_sessionful: bool, is_browser: bool = False
) -> Queue | Subscription:
    """Return the queue or subscription at an address.

    Raises the errors of `check_receiver` if it cannot have such a receiver.
    """
    entity = holding(catalogue, address)
    check_receiver(
        entity,
        is_sessionful=is_sessionful,
        is_of_dead_letters=address.sub_queue is not SubQueue.MAIN,
        is_browser=is_browser,
    )
    return entity
