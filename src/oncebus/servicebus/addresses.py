"""What a link is attached to: an entity or one of its sub-queues, its management, or the place for tokens."""

from __future__ import annotations

import enum
from typing import NamedTuple

from oncebus.broker.addresses import Address, parse_address
from oncebus.entities import path_of_address

_CBS = "$cbs"
_MANAGEMENT = "$management"


class Kind(enum.Enum):
    """What sort of place it is."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    TOKENS = "tokens"


class Node(NamedTuple):
    """A place that links are attached to. `path` is as it was written, without scheme and host: tokens are for it."""

    kind: Kind
    path: str
    address: Address


def node_of(text: str | None) -> Node:
    """What an address means. Clients write it with or without scheme and host; fixed words may have any case."""
    path = path_of_address(text or "")
    if path.lower() == _CBS:
        return Node(Kind.TOKENS, path, Address(""))
    entity, _, last = path.rpartition("/")
    if last.lower() == _MANAGEMENT:
        return Node(Kind.MANAGEMENT, path, parse_address(entity))
    return Node(Kind.ENTITY, path, parse_address(path))
