from __future__ import annotations

import pytest

from oncebus.broker.addresses import Address
from oncebus.servicebus.addresses import Kind, Node, node_of
from oncebus.store import SubQueue


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("orders", Node(Kind.ENTITY, "orders", Address("orders"))),
        ("amqps://localhost:5672/orders", Node(Kind.ENTITY, "orders", Address("orders"))),
        ("amqps://[::1]:5672/a/b", Node(Kind.ENTITY, "a/b", Address("a/b"))),
        ("/orders/", Node(Kind.ENTITY, "orders", Address("orders"))),
        (
            "t/subscriptions/s/$deadletterqueue",
            Node(
                Kind.ENTITY,
                "t/subscriptions/s/$deadletterqueue",
                Address("t/subscriptions/s", SubQueue.DEAD_LETTER),
            ),
        ),
        (
            "orders/$Transfer/$DeadLetterQueue",
            Node(Kind.ENTITY, "orders/$Transfer/$DeadLetterQueue", Address("orders", SubQueue.TRANSFER_DEAD_LETTER)),
        ),
        ("orders/$management", Node(Kind.MANAGEMENT, "orders/$management", Address("orders"))),
        (
            "sb://localhost/orders/$DeadLetterQueue/$Management",
            Node(Kind.MANAGEMENT, "orders/$DeadLetterQueue/$Management", Address("orders", SubQueue.DEAD_LETTER)),
        ),
        ("$cbs", Node(Kind.TOKENS, "$cbs", Address(""))),
        ("amqps://host/$CBS", Node(Kind.TOKENS, "$CBS", Address(""))),
        ("$management", Node(Kind.MANAGEMENT, "$management", Address(""))),
        ("", Node(Kind.ENTITY, "", Address(""))),
        (None, Node(Kind.ENTITY, "", Address(""))),
    ],
)
def test_every_form_of_an_address_is_understood(text: str | None, node: Node) -> None:
    assert node_of(text) == node
