"""What the clients for Java and Go, and qpid-jms, write and expect, frame by frame."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.connection import Connection
from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.outcomes import Accepted
from oncebus.amqp.performatives import Attach, Begin, Detach, Disposition, Flow, Source, Target, Transfer
from oncebus.amqp.types import Array, Byte, Described, Int, Symbol, Timestamp, UInt, ULong
from oncebus.model.access import make_token
from oncebus.protocols.servicebus.connection import ClientConnection
from oncebus.values.durations import HOUR
from tests.amqp.client import OPEN, credit, frames, sender, written

from .bus import ROOT
from .frames import Manager, put, taken
from .raw import Here, Stage, message, of, play, request, to

SESSION_FILTER = Symbol("com.microsoft:session-filter")


def test_java_puts_tokens_settled_for_an_audience_of_any_scheme(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(is_signed_in=False)
        await client.attached(to("$cbs", "cbs-out", 0, snd_settle_mode=1))
        await client.attached(of("$cbs", "cbs-in", 1, target=Target("cbs")), given=10)
        audience = "amqp://localhost/orders"
        token = make_token(audience, ROOT.name, ROOT.primary_key, stage.time.now + HOUR)
        own: dict[str, object] = {"type": "servicebus.windows.net:sastoken", "name": audience}
        client.transfer(request("put-token", token, own, message_id=ULong(1), reply_to="cbs"), settled=True)
        _, parts = await taken(client)
        assert amqp.application_properties(parts.head)["status-code"] == 202
        answer = await client.attached(to("orders", handle=2))
        assert (answer.max_message_size or 0) > 0

    play(tmp_path, scenario)


def test_java_needs_a_header_in_every_message(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a")
        client = stage.client()
        manager = await Manager.attached(client)
        _, answer = await manager.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(1)})
        await client.attached(of("orders", snd_settle_mode=0, rcv_settle_mode=1), given=1)
        _, payload = await client.next(Transfer)
        for encoded in (answer["messages"][0]["message"], payload):
            assert encoded.startswith(b"\x00\x53\x70")
        token = amqp.split(payload).delivery_annotations["x-opt-lock-token"]
        _, answer = await manager.ask("renew-lock", {"lock-tokens": [token]})
        assert (type(answer["expirations"]), answer["expirations"].of) == (Array, Timestamp)

    play(tmp_path, scenario)


@pytest.mark.parametrize("name", [None, "s", ""])
@pytest.mark.parametrize("descriptor", [None, ULong(0x137000000C), SESSION_FILTER])
def test_the_session_filter_of_the_answer_has_the_form_of_the_clients(
    tmp_path: Path, name: str | None, descriptor: object
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        session = name or ""
        await put(stage, b"a", queue="sessions", session=session)

        def written_as(value: str | None) -> object:
            # Java writes a bare value, Go a described one.
            return value if descriptor is None else Described(descriptor, value)

        client = stage.client()
        answer = await client.attached(of(None, source=Source("sessions", filter={SESSION_FILTER: written_as(name)})))
        assert answer.source is not None
        assert answer.source.filter == {SESSION_FILTER: written_as(session)}

    play(tmp_path, scenario)


@pytest.mark.parametrize("address", ["orders", "orders/$management", "$cbs"])
@pytest.mark.parametrize("modes", [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)])
def test_go_insists_on_the_settle_modes_that_it_asked_for(tmp_path: Path, address: str, modes: tuple[int, int]) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        asked: dict[str, Any] = {"snd_settle_mode": modes[0], "rcv_settle_mode": modes[1]}
        for attach in (to(address, handle=0, **asked), of(address, handle=1, **asked)):
            answer = await client.attached(attach)
            assert (answer.snd_settle_mode, answer.rcv_settle_mode) == modes

    play(tmp_path, scenario)


def test_go_names_the_port_and_replies_to_an_odd_address(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(is_signed_in=False)
        audience = "amqp://localhost:5672/orders"
        token = make_token(audience, ROOT.name, ROOT.primary_key, stage.time.now + HOUR)
        # A new session with a new pair of links for each token.
        for number in range(2):
            handle = 2 * number
            await client.attached(to("$cbs", f"out-{number}", handle))
            await client.attached(of("$cbs", f"in-{number}", handle + 1, target=Target(f"cbs-{number}")), given=1)
            own: dict[str, object] = {"type": "servicebus.windows.net:sastoken", "name": audience}
            sent = request("put-token", token, own, message_id=str(number), reply_to="nobody-knows")
            client.transfer(sent, handle=handle)
            _, parts = await taken(client)
            assert amqp.application_properties(parts.head)["status-code"] == 202
            for closing in (handle, handle + 1):
                client.do(Detach(handle=closing, closed=True))
                detach, _ = await client.next(Detach)
                assert detach.closed
        await client.attached(of("orders", handle=9))

    play(tmp_path, scenario)


def test_go_takes_the_lock_token_of_a_deferred_message_from_its_delivery_annotations(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a")
        client = stage.client()
        await client.attached(of("orders", snd_settle_mode=0, rcv_settle_mode=1), given=1)
        transfer, parts = await taken(client)
        number, token = parts.annotations["x-opt-sequence-number"], parts.delivery_annotations["x-opt-lock-token"]
        assert transfer.delivery_tag == token.bytes_le
        manager = await Manager.attached(client)
        deferred = {"disposition-status": "defered", "lock-tokens": [token]}
        assert await manager.ask("update-disposition", deferred) == (200, {})
        asked = {"sequence-numbers": [number], "receiver-settle-mode": UInt(1)}
        _, answer = await manager.ask("receive-by-sequence-number", asked)
        again = amqp.split(answer["messages"][0]["message"]).delivery_annotations["x-opt-lock-token"]
        assert type(again) is uuid.UUID
        settled = {"disposition-status": "completed", "lock-tokens": [again]}
        assert await manager.ask("update-disposition", settled) == (200, {})

    play(tmp_path, scenario)


def test_go_names_the_link_of_a_session_and_not_the_session(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        await put(stage, b"a", queue="sessions", session="s")
        client = stage.client()
        source = Source("sessions", filter={SESSION_FILTER: Described(ULong(0x137000000C), "s")})
        await client.attached(of(None, "own", source=source, snd_settle_mode=0, rcv_settle_mode=1), given=1)
        _, parts = await taken(client)
        number, token = parts.annotations["x-opt-sequence-number"], parts.delivery_annotations["x-opt-lock-token"]
        manager = await Manager.attached(client, "sessions/$management")
        deferred = {"disposition-status": "defered", "lock-tokens": [token]}
        assert await manager.ask("update-disposition", deferred, **{"associated-link-name": "own"}) == (200, {})
        asked = {"sequence-numbers": [number], "receiver-settle-mode": UInt(1)}
        status, _ = await manager.ask("receive-by-sequence-number", asked, **{"associated-link-name": "other"})
        assert status == 404
        status, answer = await manager.ask("receive-by-sequence-number", asked, **{"associated-link-name": "own"})
        assert status == 200
        assert amqp.split(answer["messages"][0]["message"]).body == parts.body

    play(tmp_path, scenario)


def test_a_refused_link_is_closed_not_only_detached(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        client.do(to("nowhere"))
        answer, _ = await client.next(Attach)
        detach, _ = await client.next(Detach)
        assert (answer.target, detach.closed) == (None, True)
        assert detach.error is not None
        assert detach.error.description == "The messaging entity 'sb://localhost/nowhere' could not be found."

    play(tmp_path, scenario)


def test_jms_signs_in_with_a_key_and_names_queues_with_a_capability(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        connection = Connection(container_id="server")
        peer = ClientConnection(stage.server.front, connection, Here(), lambda _: None)

        def say(data: bytes) -> list[object]:
            peer.on_events(connection.receive(data))
            said = b"".join(connection.output())
            return [each.performative for each in frames(said)] if said[4:6] == b"\x02\x00" else []

        say(SASL_HEADER)
        response = f"\0{ROOT.name}\0{ROOT.primary_key}".encode()
        say(frame(0, encode(Described(ULong(0x41), [Symbol("PLAIN"), response, "localhost"])), SASL_FRAME))
        say(AMQP_HEADER)
        say(written(OPEN) + written(Begin(next_outgoing_id=0, incoming_window=2047, outgoing_window=2**31 - 1)))
        target = Target("orders", capabilities=[Symbol("queue")])
        (answer, _) = say(written(sender(target=target, source=Source("ID:client:1"))))
        assert isinstance(answer, Attach)
        assert answer.target == target

    play(tmp_path, scenario)


def test_jms_consumers_settle_first_with_a_thousand_credits_and_drain(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("orders"))
        # Durable unless told otherwise, and the type of the message in an annotation.
        own = {Symbol("x-opt-jms-msg-type"): Byte(5), Symbol("x-opt-jms-dest"): Byte(0)}
        header = amqp.Header(durable=True)
        payload = amqp.annotate(message(b"a", message_id="ID:1"), header, {}, own)
        client.transfer(payload, payload)
        await client.outcomes(2)
        await stage.broker.counts("orders")
        source = Source("orders", capabilities=[Symbol("queue")], outcomes=[Symbol("amqp:accepted:list")])
        await client.attached(of(None, handle=1, source=source, snd_settle_mode=0, rcv_settle_mode=0))
        client.do(credit(1000, 1))
        for _ in range(2):
            transfer, parts = await taken(client)
            assert not transfer.settled
            assert parts.header.durable
            assert parts.annotations.items() >= own.items()
            # The client settles first, and waits for no answer.
            client.do(Disposition(role=True, first=transfer.delivery_id or 0, settled=True, state=Accepted()))
        client.do(credit(998, 1, delivery_count=2, drain=True))
        while True:
            flow, _ = await client.next(Flow)
            if flow.drain:
                break
        assert (flow.link_credit, flow.delivery_count) == (0, 1000)
        assert (await stage.broker.counts("orders")).active == 0

    play(tmp_path, scenario)
