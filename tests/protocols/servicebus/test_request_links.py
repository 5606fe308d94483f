"""Requests and answers, frame by frame."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Detach, Disposition, Flow, Target, Transfer
from oncebus.amqp.types import Int, UInt, ULong
from oncebus.model.access import make_token
from oncebus.protocols.servicebus import AmqpLimits
from oncebus.protocols.servicebus.management import ManagementRequests
from oncebus.protocols.servicebus.messages import incoming_message
from oncebus.protocols.servicebus.requests import Replies
from oncebus.values.durations import HOUR, MINUTE
from tests.amqp.client import credit
from tests.amqp.sockets import until

from .bus import LISTENER, ROOT
from .raw import RawClient, Stage, message, of, play, request, to

PEEK = "com.microsoft:peek-message"
FIRST = {"from-sequence-number": 1, "message-count": Int(1)}


async def managing(stage: Stage, address: str = "orders/$management") -> RawClient:
    client = stage.client()
    await client.attached(to(address, handle=0))
    await client.attached(of(address, handle=1, target=Target("me")), given=10)
    return client


def answer(payload: bytes) -> tuple[dict[str, Any], Any, amqp.Id | None]:
    """Return the properties of an answer, its body, and its correlation id."""
    parts = amqp.split(payload)
    content = amqp.decode_body(parts.body)
    assert isinstance(content, amqp.AmqpValue)
    return amqp.application_properties(parts.head), content.value, amqp.properties(parts.head).correlation_id


@pytest.mark.parametrize("identity", ["text", uuid.UUID(int=5), ULong(17), b"\x00"])
def test_an_answer_has_the_id_of_the_request_in_its_own_type(tmp_path: Path, identity: amqp.Id) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        client.transfer(request(PEEK, FIRST, message_id=identity))
        _, payload = await client.next(Transfer)
        properties, _, correlation = answer(payload)
        assert (correlation, type(correlation)) == (identity, type(identity))
        assert properties == {"statusCode": 204, "statusDescription": "No Content"}

    play(tmp_path, scenario)


def test_a_request_without_a_link_for_its_answer_is_rejected(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders/$management"))
        client.transfer(request(PEEK, FIRST), message(b"no request"))
        outcomes = await client.outcomes(2)
        assert outcomes[0].error.condition == "amqp:not-allowed"
        assert "'operation'" in outcomes[1].error.description

    play(tmp_path, scenario)


def test_reply_to_selects_one_of_several_links(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders/$management", "requests", 0))
        await client.attached(of("orders/$management", "one", 1, target=Target("first")), given=10)
        await client.attached(of("orders/$management", "two", 2, target=Target("second")), given=10)
        for reply_to, handle in {"second": 1, "two": 1, "first": 0, "elsewhere": 0}.items():
            client.transfer(request(PEEK, FIRST, message_id="m", reply_to=reply_to))
            transfer, _ = await client.next(Transfer)
            assert transfer.handle == handle + 1, reply_to

    play(tmp_path, scenario)


def test_answers_do_not_wait_for_credit_that_a_client_never_renews(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        client.do(credit(1, 1))
        for _ in range(150):
            client.transfer(request(PEEK, FIRST, message_id="m"))
            await client.next(Transfer)

    play(tmp_path, scenario)


async def waiting(client: RawClient, count: int) -> list[int]:
    """Wait until `count` answers wait to be written and no request runs. Return the credit left on the links."""

    def is_over() -> bool:
        unwritten = sum(each.link.waiting for each in client.peer.links if isinstance(each, Replies))
        running = [each._running for each in client.peer.links if isinstance(each, ManagementRequests)]
        return unwritten >= count and not any(running)

    await until(is_over)
    return [each.link.credit for each in client.peer.links if not isinstance(each, Replies)]


def test_a_client_that_does_not_read_its_answers_gets_no_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        client.connection.pause()
        client.transfer(*[request(PEEK, FIRST, message_id="m")] * 4)
        assert await waiting(client, 4) == [0]
        client.peer.on_events(client.connection.resume())
        await client.received(4)
        flow, _ = await client.next(Flow)
        assert flow.link_credit == 4
        # The same if the link for the answers ends meanwhile.
        client.connection.pause()
        client.transfer(*[request(PEEK, FIRST, message_id="m")] * 4)
        assert await waiting(client, 4) == [0]
        client.do(Detach(handle=1, closed=True))
        flow, _ = await client.next(Flow)
        assert flow.link_credit == 4
        assert client.connection.out.held == 0

    play(tmp_path, scenario, AmqpLimits(requests=4))


def test_requests_that_end_together_leave_credit_for_more(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        (link,) = (each for each in client.peer.links if isinstance(each, ManagementRequests))
        for _ in range(5):
            all_at_once = link.link.credit
            client.transfer(*[request(PEEK, FIRST, message_id="m")] * all_at_once)
            await client.received(all_at_once)
            await until(lambda: link.link.credit >= 2)

    play(tmp_path, scenario, AmqpLimits(requests=4))


def test_a_client_that_does_not_read_the_answers_to_its_tokens_gets_no_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(is_signed_in=False)
        await client.attached(to("$cbs", handle=0))
        await client.attached(of("$cbs", handle=1))
        client.connection.pause()
        client.transfer(*[request("put-token", "none", message_id="m")] * 50)
        assert await waiting(client, 50) == [0]
        client.peer.on_events(client.connection.resume())
        await client.received(50)
        flow, _ = await client.next(Flow)
        assert flow.link_credit == 50

    play(tmp_path, scenario)


def test_the_number_of_concurrent_requests_is_limited_and_their_bytes_count(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.pipeline.is_paused = True
        client = await managing(stage)
        await client.attached(to("orders", "sender", 2))
        client.transfer(message(), handle=2)
        await client.next(Disposition)
        (link,) = (each for each in client.peer.links if isinstance(each, ManagementRequests))
        asking = request(PEEK, FIRST, message_id="m")
        is_read = []
        for _ in range(2):
            client.transfer(*[asking] * 3)
            await asyncio.sleep(0.01)
            is_read.append(not client.wire.is_paused)
            assert len(link._running) == 3
        assert is_read == [True, False]
        stage.pipeline.is_paused = False
        await client.received(6)
        await until(lambda: not client.wire.is_paused and client.peer._held == 0)
        # Requests that are cancelled when the link ends no longer count either.
        stage.pipeline.is_paused = True
        client.transfer(message(), handle=2)
        await client.next(Disposition)
        client.transfer(*[asking] * 5)
        client.do(Detach(handle=0, closed=True))
        await until(lambda: client.peer._held == 0)
        stage.pipeline.is_paused = False

    size = len(request(PEEK, FIRST, message_id="m"))
    play(tmp_path, scenario, AmqpLimits(requests=3, bytes_under_way=3 * size))


def test_a_request_that_exceeds_the_clients_time_out_is_cancelled(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.pipeline.is_paused = True
        client = await managing(stage)
        await client.attached(to("orders", "sender", 2))
        client.transfer(message(), handle=2)
        await client.next(Disposition)
        client.transfer(request(PEEK, FIRST, {"com.microsoft:server-timeout": UInt(20)}, message_id="m"))
        _, payload = await client.next(Transfer)
        properties, _, _ = answer(payload)
        assert (properties["statusCode"], properties["errorCondition"]) == (408, "com.microsoft:timeout")
        stage.pipeline.is_paused = False

    play(tmp_path, scenario)


def test_a_token_is_put_before_anything_else(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(is_signed_in=False)
        assert (await client.refused(to("orders")))[0] == "amqp:unauthorized-access"
        assert (await client.refused(of("orders/$management")))[0] == "amqp:unauthorized-access"
        await client.attached(to("$cbs", handle=0))
        await client.attached(of("$cbs", handle=1), given=10)

        async def put(token: str, **own: object) -> tuple[int, str]:
            client.transfer(request("put-token", token, {"name": "sb://localhost/orders", **own}, message_id="m"))
            _, payload = await client.next(Transfer)
            properties, _, _ = answer(payload)
            return properties["status-code"], properties["status-description"]

        end = stage.time.now + HOUR
        wrong = make_token("sb://localhost/orders", ROOT.name, "wrong", end)
        assert await put(wrong) == (401, "InvalidSignature: The token has an invalid signature.")
        status, text = await put("eyJ0eXAiOiJKV1QifQ", type="jwt")
        assert (status, text.partition(":")[0]) == (401, "MalformedToken")
        # Only a client with a valid token learns that an entity does not exist.
        assert (await put(wrong, name="sb://localhost/nowhere"))[0] == 401
        root = make_token("amqps://localhost:5671/", ROOT.name, ROOT.primary_key, end)
        missing = "The messaging entity 'sb://localhost/nowhere' could not be found."
        assert await put(root, name="amqp://localhost:5672/nowhere/$management") == (404, missing)
        listener = make_token("sb://localhost/orders", LISTENER.name, LISTENER.secondary_key, end)
        # Nor does a valid token tell which other entities exist.
        assert [(await put(listener, name=f"sb://localhost/{name}"))[0] for name in ("other", "nowhere")] == [202, 202]
        assert await put(listener, type="jwt") == (202, "Accepted")
        assert client.connection.is_trusted
        # It is verified again before it expires.
        assert client.peer.deadline == stage.time.now + MINUTE

        condition, description = await client.refused(to("orders", "s", 2))
        assert condition == "amqp:unauthorized-access"
        assert description == (
            "Unauthorized access. 'Send' claim(s) are required to perform this operation. "
            "Resource: 'sb://localhost/orders'."
        )
        await client.attached(of("orders", "r", 3))
        await client.attached(to("orders/$management", "m", 4))
        await client.attached(of("orders/$management", "a", 5), given=5)
        client.transfer(request("com.microsoft:schedule-message", {}, message_id="m"), handle=4)
        _, payload = await client.next(Transfer)
        properties, _, _ = answer(payload)
        assert (properties["statusCode"], properties["errorCondition"]) == (401, "amqp:unauthorized-access")

    play(tmp_path, scenario)


def test_a_request_is_accepted_before_it_is_answered(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        (number,) = client.transfer(request(PEEK, FIRST, message_id="m"))
        assert await client.outcomes(1) == {number: Accepted()}

    play(tmp_path, scenario)


def test_a_second_pair_of_links_to_cbs_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage, "$cbs")
        for attach in (to("$cbs", "again", handle=2), of("$cbs", "again", handle=3, target=Target("me"))):
            condition, _ = await client.refused(attach)
            assert condition == "amqp:not-allowed"
        client.do(Detach(handle=0, closed=True))
        await client.next(Detach)
        await client.attached(to("$cbs", "later", handle=0))

    play(tmp_path, scenario)


def test_a_management_link_stays_when_its_entity_is_created_again(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await managing(stage)
        await stage.broker.change(lambda catalogue, _: catalogue.delete(catalogue.queue("orders")))
        await stage.queue("orders")
        await stage.broker.send("orders", [incoming_message(message(b"new"))])
        client.peer.check()
        client.transfer(request(PEEK, FIRST, message_id="1"))
        _, payload = await client.next(Transfer)
        assert answer(payload)[0]["statusCode"] == 200

    play(tmp_path, scenario)


def test_refusals_name_the_host_that_the_client_opened(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(hostname="bus.example.org")
        _, text = await client.refused(of("nowhere"))
        assert text == "The messaging entity 'sb://bus.example.org/nowhere' could not be found."

    play(tmp_path, scenario)
