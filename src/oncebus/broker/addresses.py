"""What a receiver or a sender addresses: an entity, and which of its sub-queues."""

from __future__ import annotations

from typing import NamedTuple

from oncebus.entities.names import path_of_address
from oncebus.store.values import SubQueue

_SUB_QUEUES = (
    ("/$transfer/$deadletterqueue", SubQueue.TRANSFER_DEAD_LETTER),
    ("/$deadletterqueue", SubQueue.DEAD_LETTER),
)


class Address(NamedTuple):
    """The path of an entity as it was written, and the sub-queue of it that is meant."""

    path: str
    sub_queue: SubQueue = SubQueue.MAIN


def parse_address(text: str) -> Address:
    """What an address means, with or without scheme and host. The names of sub-queues may have any case."""
    path = path_of_address(text)
    lowered = path.lower()
    for ending, sub_queue in _SUB_QUEUES:
        if lowered.endswith(ending):
            return Address(path[: -len(ending)], sub_queue)
    return Address(path)
