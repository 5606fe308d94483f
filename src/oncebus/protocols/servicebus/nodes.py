"""The nodes that a link can attach to: an entity or one of its sub-queues, its $management, or $cbs for tokens."""

from __future__ import annotations

import enum
from typing import NamedTuple

from oncebus.broker.addresses import Address, parse_address
from oncebus.model.entities import path_of_address

_CBS = "$cbs"
_MANAGEMENT = "$management"


class NodeKind(enum.Enum):
    """The kinds of nodes."""

    ENTITY = "entity"
    MANAGEMENT = "management"
    TOKENS = "tokens"
    TRANSACTIONS = "transactions"


class Node(NamedTuple):
    """A node that links attach to.

    Tokens must cover `path`, which is the path as the client wrote it, without scheme and host.
    """

    kind: NodeKind
    path: str
    address: Address


TRANSACTIONS = Node(NodeKind.TRANSACTIONS, "", Address(""))
"""The coordinator of transactions. It has no address."""


def node_of(text: str | None) -> Node:
    """Return the node for an address. Scheme and host are optional, and the case of fixed words does not matter."""
    path = path_of_address(text or "")
    if path.lower() == _CBS:
        return Node(NodeKind.TOKENS, path, Address(""))
    entity, _, last = path.rpartition("/")
    if last.lower() == _MANAGEMENT:
        return Node(NodeKind.MANAGEMENT, path, parse_address(entity))
    return Node(NodeKind.ENTITY, path, parse_address(path))
