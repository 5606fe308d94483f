"""Addresses that senders and receivers use: an entity, and one of its sub-queues."""

from __future__ import annotations

from typing import NamedTuple

from oncebus.entities.names import path_of_address
from oncebus.store.values import SubQueue

_SUB_QUEUES = (
    ("/$transfer/$deadletterqueue", SubQueue.TRANSFER_DEAD_LETTER),
    ("/$deadletterqueue", SubQueue.DEAD_LETTER),
)


class Address(NamedTuple):
    """The path of an entity as the caller wrote it, and the sub-queue that it means."""

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
