"""Topics, their subscriptions and rules."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from .served import Served, async_received, body, completed, is_empty, received
from .together import together

ACT = "messages"


def priced(price: int) -> ServiceBusMessage:
    return ServiceBusMessage(str(price).encode(), application_properties={"price": price})


@together
def test_each_subscription_gets_the_messages_its_rules_select(served: Served) -> None:
    topic = served.topic()
    with (
        served.client() as client,
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "all") as everything,
        client.get_subscription_receiver(topic, "dear") as dear,
        client.get_subscription_receiver(topic, "red") as red,
    ):
        sender.send_messages([priced(50), priced(150)])
        paint = ServiceBusMessage(b"paint", subject="paint", application_properties={"colour": "red"})
        blue = ServiceBusMessage(b"blue", subject="paint", application_properties={"colour": "blue"})
        sender.send_messages([paint, blue, priced(101)])
        messages = received(everything, 5)
        assert [body(message) for message in messages] == [b"50", b"150", b"paint", b"blue", b"101"]
        first, second = received(dear, 2)
        assert (body(first), body(second)) == (b"150", b"101")
        assert (first.application_properties or {})[b"urgent"] is True
        assert (first.sequence_number, first.enqueued_sequence_number) == (1, 2)
        assert completed(red, 1) == [b"paint"]
        assert is_empty(red)


@together
def test_each_subscription_has_its_own_dead_letters(served: Served) -> None:
    topic, dead = served.topic(), ServiceBusSubQueue.DEAD_LETTER
    with (
        served.client() as client,
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "all") as everything,
        client.get_subscription_receiver(topic, "dear") as dear,
        client.get_subscription_receiver(topic, "dear", sub_queue=dead) as letters,
    ):
        sender.send_messages(priced(150))
        (message,) = received(dear, 1)
        dear.dead_letter_message(message, reason="too dear")
        (letter,) = received(letters, 1)
        assert (body(letter), letter.dead_letter_reason) == (b"150", "too dear")
        letters.complete_message(letter)
        assert completed(everything, 1) == [b"150"]


@together
async def test_the_asyncio_client_receives_from_a_subscription(served: Served) -> None:
    topic = served.topic()
    async with (
        served.async_client() as client,
        client.get_topic_sender(topic) as sender,
        client.get_subscription_receiver(topic, "dear") as dear,
    ):
        await sender.send_messages([priced(price) for price in (1, 101, 2, 102)])
        messages = await async_received(dear, 2)
        assert [body(message) for message in messages] == [b"101", b"102"]
        for message in messages:
            await dear.complete_message(message)


@together
def test_rules_of_the_administration_client_apply_to_later_messages(served: Served) -> None:
    topic = served.topic()
    with served.administration() as admin, served.client() as client, client.get_topic_sender(topic) as sender:
        admin.create_subscription(topic, "mine")
        admin.delete_rule(topic, "mine", "$Default")
        admin.create_rule(
            topic,
            "mine",
            "cheap",
            filter=SqlRuleFilter("price < @limit", {"@limit": 10}),
            action=SqlRuleAction("SET cheap = 1"),
        )
        admin.create_rule(topic, "mine", "named", filter=CorrelationRuleFilter(correlation_id="me"))
        sender.send_messages([priced(5), priced(50), ServiceBusMessage(b"named", correlation_id="me")])
        with client.get_subscription_receiver(topic, "mine") as mine:
            first, second = received(mine, 2)
            assert (body(first), body(second)) == (b"5", b"named")
            assert (first.application_properties or {})[b"cheap"] == 1
        assert {rule.name for rule in admin.list_rules(topic, "mine")} == {"cheap", "named"}
        admin.delete_subscription(topic, "mine")
