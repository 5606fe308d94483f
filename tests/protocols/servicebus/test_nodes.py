from __future__ import annotations

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store import SubQueue
from oncebus.protocols.servicebus.nodes import Node, NodeKind, node_of


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("orders", Node(NodeKind.ENTITY, "orders", Address("orders"))),
        ("amqps://localhost:5672/orders", Node(NodeKind.ENTITY, "orders", Address("orders"))),
        ("amqps://[::1]:5672/a/b", Node(NodeKind.ENTITY, "a/b", Address("a/b"))),
        ("/orders/", Node(NodeKind.ENTITY, "orders", Address("orders"))),
        (
            "t/subscriptions/s/$deadletterqueue",
            Node(
                NodeKind.ENTITY,
                "t/subscriptions/s/$deadletterqueue",
                Address("t/subscriptions/s", SubQueue.DEAD_LETTER),
            ),
        ),
        (
            "orders/$Transfer/$DeadLetterQueue",
            Node(
                NodeKind.ENTITY, "orders/$Transfer/$DeadLetterQueue", Address("orders", SubQueue.TRANSFER_DEAD_LETTER)
            ),
        ),
        ("orders/$management", Node(NodeKind.MANAGEMENT, "orders/$management", Address("orders"))),
        (
            "sb://localhost/orders/$DeadLetterQueue/$Management",
            Node(NodeKind.MANAGEMENT, "orders/$DeadLetterQueue/$Management", Address("orders", SubQueue.DEAD_LETTER)),
        ),
        ("$cbs", Node(NodeKind.TOKENS, "$cbs", Address(""))),
        ("amqps://host/$CBS", Node(NodeKind.TOKENS, "$CBS", Address(""))),
        ("$management", Node(NodeKind.MANAGEMENT, "$management", Address(""))),
        ("", Node(NodeKind.ENTITY, "", Address(""))),
        (None, Node(NodeKind.ENTITY, "", Address(""))),
    ],
)
def test_every_form_of_an_address_is_understood(text: str | None, node: Node) -> None:
    assert node_of(text) == node
