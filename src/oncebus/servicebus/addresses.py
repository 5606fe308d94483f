"""The nodes that a link can attach to: an entity or one of its sub-queues, its $management, or $cbs for tokens."""

from __future__ import annotations

import enum
from typing import NamedTuple

from oncebus.broker.addresses import Address, parse_address
from oncebus.entities import path_of_address

_CBS = "$cbs"
_MANAGEMENT = "$management"


class Kind(enum.Enum):
    """The kinds of nodes."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    TOKENS = "tokens"


class Node(NamedTuple):
    """A node that links attach to. Tokens are checked for `path`: as the client wrote it, without scheme and host."""

    kind: Kind
    path: str
    address: Address


def node_of(text: str | None) -> Node:
    """Return the node for an address. Scheme and host are optional, and the case of fixed words does not matter."""
    path = path_of_address(text or "")
    if path.lower() == _CBS:
        return Node(Kind.TOKENS, path, Address(""))
    entity, _, last = path.rpartition("/")
    if last.lower() == _MANAGEMENT:
        return Node(Kind.MANAGEMENT, path, parse_address(entity))
    return Node(Kind.ENTITY, path, parse_address(path))
