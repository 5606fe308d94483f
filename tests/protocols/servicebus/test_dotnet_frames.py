"""What Azure.Messaging.ServiceBus for .NET writes and expects, frame by frame: docs/internals/servicebus.md."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from oncebus import amqp
from oncebus.amqp.connection import Connection
from oncebus.amqp.encoding import encode
from oncebus.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from oncebus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Modified, Rejected
from oncebus.amqp.performatives import Begin, Disposition, Flow, Open, Source, Target, Transfer
from oncebus.amqp.types import Array, Char, Decimal128, Described, Int, Long, Symbol, Timestamp, UByte, UInt, ULong
from oncebus.model.access import make_token
from oncebus.model.entities import Subscription, Topic
from oncebus.protocols.servicebus.connection import ClientConnection
from oncebus.values.durations import HOUR
from tests.amqp.client import OPEN, credit, frames, written

from .bus import ROOT
from .frames import Manager, put, taken
from .raw import Here, Stage, message, of, play, request, to

TICKS_AT_1970 = 621_355_968_000_000_000
TIMEOUT = Symbol("com.microsoft:timeout")
PEEK_LOCK: dict[str, Any] = {"snd_settle_mode": 0, "rcv_settle_mode": 1}
DELETE: dict[str, Any] = {"snd_settle_mode": 1}


def test_the_client_signs_in_with_mssbcbs_and_a_window_without_end(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        connection = Connection(container_id="server")
        peer = ClientConnection(stage.server.front, connection, Here(), lambda _: None)

        def say(data: bytes) -> bytes:
            peer.on_events(connection.receive(data))
            return b"".join(connection.output())

        assert b"MSSBCBS" in say(SASL_HEADER)
        init = Described(ULong(0x41), [Symbol("MSSBCBS")])
        assert say(frame(0, encode(init), SASL_FRAME)).endswith(encode(Described(ULong(0x44), [UByte(0), None])))
        assert say(AMQP_HEADER) == AMQP_HEADER
        begin = Begin(next_outgoing_id=1, incoming_window=2**32 - 1, outgoing_window=5000)
        answers = [each.performative for each in frames(say(written(OPEN) + written(begin)))]
        assert [type(each) for each in answers] == [Open, Begin]

    play(tmp_path, scenario)


def test_a_token_is_put_for_each_link_with_its_whole_address(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client(is_signed_in=False)
        await client.attached(to("$cbs", "cbs-out", 0))
        await client.attached(of("$cbs", "cbs-in", 1, target=Target("cbs")), given=10)
        end = stage.time.now + HOUR
        for audience in ("sb://localhost/orders", "sb://localhost/orders/$management"):
            token = make_token(audience, ROOT.name, ROOT.primary_key, end)
            own: dict[str, object] = {
                "type": "servicebus.windows.net:sastoken",
                "name": audience,
                "expiration": Timestamp(end // 1000),
            }
            client.transfer(request("put-token", token, own, message_id=ULong(7), reply_to="cbs"))
            _, parts = await taken(client)
            properties = amqp.application_properties(parts.head)
            assert (properties["status-code"], type(properties["status-code"])) == (202, Int)
            assert amqp.properties(parts.head).correlation_id == ULong(7)
        await client.attached(to("/orders", handle=2))

    play(tmp_path, scenario)


def test_a_sender_reads_the_sizes_of_its_link(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        source = Source(str(uuid.uuid4()))
        answer = await client.attached(to("/orders", source=source, properties={TIMEOUT: UInt(60_000)}))
        assert answer.max_message_size == 256 * 1024
        limit = (answer.properties or {})[Symbol("com.microsoft:max-message-batch-size")]
        assert (limit, type(limit)) == (256 * 1024, ULong)
        assert (answer.source, answer.target) == (source, Target("/orders"))

    play(tmp_path, scenario)


def test_the_envelope_of_a_batch_has_the_id_and_session_of_its_first_message(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("/orders"))
        head, _ = amqp.encode_message(amqp.Properties(message_id="1", group_id="s"), None, b"")
        envelope = b"".join(amqp.deliverable(head, b"", amqp.Header(), {"x-opt-partition-key": "s"}))
        batch = b"".join(amqp.encode_body(message(body, message_id=body.decode())) for body in (b"1", b"2"))
        # Its delivery tags are counters, the lowest byte first.
        (number,) = client.transfer(envelope + batch, message_format=amqp.BATCH_FORMAT, batchable=True)
        assert await client.outcomes(1) == {number: Accepted()}
        await stage.broker.counts("orders")
        await client.attached(of("/orders", handle=1, **PEEK_LOCK), given=2)
        client.do(credit(2, 1))
        found = [(await taken(client))[1] for _ in range(2)]
        assert [amqp.message_id(parts.head) for parts in found] == ["1", "2"]
        assert [amqp.group_id(parts.head) for parts in found] == [None, None]

    play(tmp_path, scenario)


def test_a_lock_token_is_a_guid_in_the_tag_and_a_uuid_elsewhere(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("/orders", target=Target(str(uuid.uuid4())), **PEEK_LOCK), given=2)
        tokens = []
        for _ in range(2):
            transfer, parts = await taken(client)
            assert transfer.delivery_tag is not None
            token = uuid.UUID(bytes_le=transfer.delivery_tag)
            assert parts.delivery_annotations == {"x-opt-lock-token": token}
            tokens.append(token)
        manager = await Manager.attached(client, "orders/$management")
        stage.time.advance(5)
        status, body = await manager.ask("renew-lock", {"lock-tokens": Array(uuid.UUID, tokens)})
        expirations = body["expirations"]
        assert (status, type(expirations), expirations.of) == (200, Array, Timestamp)
        assert expirations == [stage.time.now // 1000 + 60_000] * 2
        settled = {"disposition-status": "completed", "lock-tokens": Array(uuid.UUID, tokens)}
        assert await manager.ask("update-disposition", settled) == (200, {})

    play(tmp_path, scenario)


def test_settlements_are_batchable_and_have_properties_to_modify(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b", b"c", b"d")
        client = stage.client()
        await client.attached(of("/orders", **PEEK_LOCK), given=4)
        ids = [(await taken(client))[0].delivery_id or 0 for _ in range(4)]
        changed: dict[Symbol, object] = {Symbol("changed"): "yes"}
        info = {Symbol("DeadLetterReason"): "r", Symbol("DeadLetterErrorDescription"): "d", **changed}
        states: list[DeliveryState] = [
            Accepted(),
            Modified(message_annotations=changed),
            Modified(undeliverable_here=True, message_annotations=changed),
            Rejected(AmqpError("com.microsoft:dead-letter", None, info)),
        ]
        for number, state in zip(ids, states, strict=True):
            client.do(Disposition(role=True, first=number, settled=False, state=state, batchable=True))
        answers = await client.outcomes(4)
        assert [type(answers[number]) for number in ids] == [Accepted, Modified, Modified, Rejected]
        assert answers[ids[3]].error is None
        manager = await Manager.attached(client)
        _, body = await manager.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(10)})
        found = [amqp.split(each["message"]) for each in body["messages"]]
        assert [amqp.application_properties(parts.head) for parts in found] == [{"changed": "yes"}] * 2
        assert [parts.annotations.get("x-opt-message-state") for parts in found] == [None, Int(1)]

    play(tmp_path, scenario)


def test_the_client_accepts_what_was_received_and_deleted_and_that_changes_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("/orders", **DELETE), given=1)
        transfer, parts = await taken(client)
        assert (transfer.settled, transfer.delivery_tag, parts.delivery_annotations) == (True, b"", {})
        client.do(Disposition(role=True, first=transfer.delivery_id or 0, settled=True, state=Accepted()))
        client.do(credit(1, delivery_count=1))
        transfer, parts = await taken(client)
        assert (transfer.settled, amqp.decode_body(parts.body)) == (True, b"b")

    play(tmp_path, scenario)


def session_of(name: str | None) -> dict[str, Any]:
    source = Source("/sessions", filter={Symbol("com.microsoft:session-filter"): name})
    return {"source": source, "properties": {TIMEOUT: UInt(50)}, **PEEK_LOCK}


def test_a_session_is_named_by_a_bare_string_and_locked_until_ticks(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        await put(stage, b"a", queue="sessions", session="s")
        client = stage.client()
        answer = await client.attached(of(None, **session_of(None)), given=3)
        assert answer.source is not None
        assert answer.source.filter == {"com.microsoft:session-filter": "s"}
        until = (answer.properties or {})[Symbol("com.microsoft:locked-until-utc")]
        assert (until, type(until)) == (TICKS_AT_1970 + (stage.time.now + 60_000_000) * 10, int)
        transfer, _ = await taken(client)
        # It drains what is left of its credit after each receive, to keep the order within the session.
        client.do(credit(2, delivery_count=1, drain=True, echo=True))
        while True:
            flow, _ = await client.next(Flow)
            if flow.drain:
                break
        assert (flow.link_credit, flow.delivery_count) == (0, 3)
        manager = await Manager.attached(client, "sessions/$management")
        state = {"session-id": "s", "session-state": b"state"}
        assert await manager.ask("set-session-state", state) == (200, {})
        assert await manager.ask("get-session-state", {"session-id": "s"}) == (200, {"session-state": b"state"})
        status, body = await manager.ask("renew-session-lock", {"session-id": "s"})
        assert (status, type(body["expiration"])) == (200, Timestamp)
        # Messages of a session can be deleted by the one that holds it.
        await put(stage, b"b", b"c", queue="sessions", session="s")
        await put(stage, b"other", queue="sessions", session="t")
        before = Timestamp((stage.time.now + HOUR) // 1000)
        asked = {"message-count": Int(10), "enqueued-time-utc": before, "session-id": "s"}
        assert await manager.ask("batch-delete-messages", asked) == (200, {"message-count": 2})
        assert (await manager.ask("batch-delete-messages", asked))[0] == 204
        client.do(Disposition(role=True, first=transfer.delivery_id or 0, settled=False, state=Accepted()))
        await client.outcomes(1)
        assert (await stage.broker.counts("sessions")).active == 1
        # With none free, the answer comes before the client's own time-out.
        other = stage.client()
        await other.attached(of(None, **session_of("t")))
        assert (await other.refused(of(None, "r2", 1, **session_of(None))))[0] == "com.microsoft:timeout"

    play(tmp_path, scenario)


def test_schedules_deferred_messages_and_peeks_use_arrays_lists_and_binaries(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        manager = await Manager.attached(client)
        later = Timestamp((stage.time.now + HOUR) // 1000)
        head, body = amqp.encode_message(amqp.Properties(message_id="m"), None, b"x")
        payload = b"".join(amqp.deliverable(head, body, amqp.Header(), {"x-opt-scheduled-enqueue-time": later}))
        status, answer = await manager.ask("schedule-message", {"messages": [{"message-id": "m", "message": payload}]})
        numbers = answer["sequence-numbers"]
        assert (status, type(numbers), numbers.of) == (200, Array, int)
        status, answer = await manager.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(1)})
        assert type(answer["messages"]) is list
        peeked = amqp.split(answer["messages"][0]["message"])
        assert peeked.annotations["x-opt-message-state"] == Int(2)
        assert answer["messages"][0]["message"].startswith(b"\x00\x53\x70")
        cancelled = await manager.ask("cancel-scheduled-message", {"sequence-numbers": Array(Long, numbers)})
        assert cancelled == (200, {})
        await put(stage, b"later")
        await client.attached(of("/orders", **PEEK_LOCK), given=1)
        transfer, parts = await taken(client)
        number = parts.annotations["x-opt-sequence-number"]
        state = Modified(undeliverable_here=True)
        client.do(Disposition(role=True, first=transfer.delivery_id or 0, settled=False, state=state))
        await client.outcomes(1)
        asked = {"sequence-numbers": Array(Long, [number]), "receiver-settle-mode": UInt(1)}
        status, answer = await manager.ask("receive-by-sequence-number", asked)
        (found,) = answer["messages"]
        parts = amqp.split(found["message"])
        assert type(found["lock-token"]) is uuid.UUID
        assert parts.delivery_annotations["x-opt-lock-token"] == found["lock-token"]
        assert parts.header.delivery_count == 1

    play(tmp_path, scenario)


def test_rules_are_described_lists_with_the_codes_of_the_client(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for made in (Topic(name="news"), Subscription(topic="news", name="all")):
            await stage.broker.change(lambda catalogue, now, made=made: catalogue.create(made, now))  # type: ignore[misc]
        manager = await Manager.attached(stage.client(), "news/Subscriptions/all/$management")
        sql = {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET b = 2"}}
        assert await manager.ask("add-rule", {"rule-name": "r", "rule-description": sql}) == (200, {})
        _, answer = await manager.ask("enumerate-rules", {"top": Int(100), "skip": Int(0)})
        first, second = [each["rule-description"] for each in answer["rules"]]
        assert first.descriptor == ULong(0x13700000004)
        chosen, action, name, created = first.value
        assert (chosen.descriptor, action.descriptor, name) == (ULong(0x1370000007), ULong(0x13700000005), "$Default")
        assert type(created) is Timestamp
        chosen, action, name, _ = second.value
        assert (chosen.descriptor, chosen.value[0], action.descriptor, action.value[0], name) == (
            ULong(0x1370000006), "a = 1", ULong(0x13700000006), "SET b = 2", "r"
        )  # fmt: skip
        assert await manager.ask("remove-rule", {"rule-name": "r"}) == (200, {})

    play(tmp_path, scenario)


def test_values_of_dotnet_types_come_back(tmp_path: Path) -> None:
    own: dict[str, object] = {
        "uri": Described(Symbol("com.microsoft:uri"), "http://x/"),
        "offset": Described(Symbol("com.microsoft:datetime-offset"), TICKS_AT_1970),
        "span": Described(Symbol("com.microsoft:timespan"), 10_000_000),
        "guid": uuid.UUID(int=7),
        "date": Timestamp(5),
        # As the client writes 1.5: it comes back unchanged.
        "decimal": Decimal128(bytes.fromhex("0c3e000000000000000000000000000f")),
        "char": Char("x"),
    }

    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(to("/orders"))
        head, body = amqp.encode_message(amqp.Properties(message_id="m"), own, b"x")
        client.transfer(head + body)
        await client.outcomes(1)
        await stage.broker.counts("orders")
        await client.attached(of("/orders", handle=1, **PEEK_LOCK))
        client.do(credit(1, 1))
        _, parts = await taken(client)
        assert parts.head == head

    play(tmp_path, scenario)


def test_the_links_of_management_have_an_entity_type(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        kind = {TIMEOUT: UInt(60_000), Symbol("com.microsoft:entity-type"): "entity-mgmt"}
        await client.attached(to("orders/$management", "m-out", 0, properties=kind))
        target = Target(str(uuid.uuid4()))
        await client.attached(of("orders/$management", "m-in", 1, target=target, properties=kind), given=5)
        own: dict[str, object] = {"com.microsoft:server-timeout": UInt(60_000), "associated-link-name": "r"}
        asked = {"from-sequence-number": 0, "message-count": Int(1)}
        client.transfer(request("com.microsoft:peek-message", asked, own, message_id=ULong(1), reply_to=target.address))
        transfer, payload = await client.next(Transfer)
        assert transfer.handle is not None
        assert amqp.application_properties(amqp.split(payload).head)["statusCode"] == 204

    play(tmp_path, scenario)
