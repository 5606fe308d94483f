"""Peeking at messages without receiving them."""

from __future__ import annotations

from pathlib import Path

from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Settlement, SubQueue
from tests.protocols.http.http_front import LISTENER, SENDER, Front, scenario, token


def test_peeking_shows_messages_in_any_state_and_leaves_them(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        headers = {"Content-Type": "text/plain", "Attempts": "3"}
        await front.send("orders", b"one", headers, MessageId="a", Label="l")
        await front.send("orders", b"\xff\x00", MessageId="b", ScheduledEnqueueTimeUtc="2999-01-01T00:00:00Z")
        await front.peek_lock("orders")
        for _ in range(2):
            answer = await front.ask("GET", "/orders/$messages")
            assert answer.status == 200
            assert (answer.json["entity"], answer.json["next"]) == ("orders", None)
            first, second = answer.json["messages"]
            assert first["Body"] == "one"
            assert first["UserProperties"] == {"Attempts": 3}
            system = first["BrokerProperties"]
            assert (
                system["MessageId"],
                system["Label"],
                system["ContentType"],
                system["State"],
                system["DeliveryCount"],
            ) == (
                "a",
                "l",
                "text/plain",
                "Active",
                1,
            )
            assert "LockToken" not in system
            assert (second["Body"], second["IsBodyBase64"]) == ("/wA=", True)
            assert second["BrokerProperties"]["State"] == "Scheduled"

    scenario(tmp_path, play)


def test_pages_begin_at_a_number(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        for at in range(5):
            await front.send("orders", MessageId=str(at))
        page = (await front.ask("GET", "/orders/$Messages", query="count=2")).json
        assert [each["BrokerProperties"]["SequenceNumber"] for each in page["messages"]] == [1, 2]
        assert page["next"] == 3
        page = (await front.ask("GET", "/orders/$messages/", query="from=4&count=2")).json
        assert [each["BrokerProperties"]["SequenceNumber"] for each in page["messages"]] == [4, 5]
        last = (await front.ask("GET", "/orders/$messages", query=f"from={page['next']}")).json
        assert (last["messages"], last["next"]) == ([], None)

    scenario(tmp_path, play)


def test_dead_letters_show_their_reason(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.topic("news", "all")
        await front.send("news", MessageId="a")
        place = Address("news/Subscriptions/all")
        (held,) = await front.broker.receive(place, 1, wait=5)
        assert held.message.token is not None
        settlement = Settlement(Action.DEAD_LETTER, held.message.token, reason="Bad", description="It is.")
        await front.broker.settle(place, [settlement])
        path = "/news/subscriptions/all/$DeadLetterQueue/$messages"
        (dead,) = (await front.ask("GET", path)).json["messages"]
        system = dead["BrokerProperties"]
        assert (system["DeadLetterReason"], system["DeadLetterErrorDescription"]) == ("Bad", "It is.")
        assert place.sub_queue is SubQueue.MAIN

    scenario(tmp_path, play)


def test_peeking_needs_listen_and_valid_parameters(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.topic("news")
        for given, status in ((None, 401), (token(front.time, SENDER), 401), (token(front.time, LISTENER), 200)):
            assert (await front.ask("GET", "/orders/$messages", token=given)).status == status
        assert (await front.ask("POST", "/orders/$messages")).status == 405
        assert (await front.ask("GET", "/nowhere/$messages")).status == 404
        assert (await front.ask("GET", "/news/$messages")).status == 400
        for query in ("count=0", "count=101", "count=x", "from=-1"):
            answer = await front.ask("GET", "/orders/$messages", query=query)
            assert answer.status == 400
            assert "Not a number from" in answer.text

    scenario(tmp_path, play)
