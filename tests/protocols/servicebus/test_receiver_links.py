"""Receivers, frame by frame."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from oncebus.amqp.performatives import Attach, Detach, Disposition, Flow, Source, Transfer
from oncebus.amqp.types import Symbol, UInt
from oncebus.broker import receivers
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Received
from oncebus.protocols.servicebus.messages import incoming_message, tag_of
from tests.amqp.client import credit
from tests.amqp.sockets import until

from .bus import PATIENCE
from .raw import RawClient, Stage, message, of, play


async def put(stage: Stage, *bodies: bytes, queue: str = "orders", session: str | None = None) -> None:
    messages = [incoming_message(message(body, group_id=session)) for body in bodies]
    await stage.broker.send(queue, messages)
    await stage.broker.counts(queue)


def body(payload: bytes) -> object:
    return amqp.decode_body(amqp.split(payload).body)


def settle(client: RawClient, numbers: list[int], state: object, *, settled: bool = False) -> None:
    for number in numbers:
        client.do(Disposition(role=True, first=number, settled=settled, state=state))  # type: ignore[arg-type]


def test_each_delivery_settled_in_one_call_gets_its_own_outcome(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, *(str(number).encode() for number in range(7)))
        client = stage.client()
        await client.attached(of("orders", rcv_settle_mode=1, snd_settle_mode=0), given=7)
        found = await client.received(7)
        ids = [transfer.delivery_id or 0 for transfer, _ in found]
        reasons: dict[Symbol, object] = {Symbol("DeadLetterReason"): "r", Symbol("DeadLetterErrorDescription"): "d"}
        client.do(
            Disposition(role=True, first=ids[0], last=ids[1], state=Accepted()),
            Disposition(role=True, first=ids[2], state=Modified(True, False)),
            Disposition(role=True, first=ids[3], state=Modified(None, True)),
            Disposition(role=True, first=ids[4], state=Rejected(AmqpError("com.microsoft:dead-letter", None, reasons))),
            Disposition(role=True, first=ids[5], state=Released()),
        )
        assert await client.outcomes(6) == {
            ids[0]: Accepted(),
            ids[1]: Accepted(),
            ids[2]: Modified(True, False),
            ids[3]: Modified(None, True),
            ids[4]: Rejected(),
            ids[5]: Released(),
        }
        counts = await stage.broker.counts("orders")
        assert (counts.active, counts.deferred, counts.dead_letter) == (3, 1, 1)
        again = await stage.broker.receive(Address("orders"), 5)
        # The abandoned one has been delivered twice now, the released one once.
        assert [(each.message.sequence, each.message.deliveries) for each in again] == [(3, 2), (6, 1)]

    play(tmp_path, scenario)


def test_a_lost_lock_is_reported_and_does_not_affect_the_others(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("orders"), given=1)
        ((first, _),) = await client.received(1)
        stage.time.advance(61)
        client.do(credit(1, delivery_count=1))
        ((second, _),) = await client.received(1)
        settle(client, [first.delivery_id or 0, second.delivery_id or 0], Accepted())
        outcomes = await client.outcomes(2)
        assert outcomes[second.delivery_id or 0] == Accepted()
        assert outcomes[first.delivery_id or 0].error.condition == "com.microsoft:message-lock-lost"

    play(tmp_path, scenario)


def test_a_settled_disposition_is_not_answered(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("orders"), given=2)
        (first, _), (second, _) = await client.received(2)
        settle(client, [first.delivery_id or 0], Accepted(), settled=True)
        settle(client, [second.delivery_id or 0], Accepted())
        assert list(await client.outcomes(1)) == [second.delivery_id]
        assert (await stage.broker.counts("orders")).active == 0

    play(tmp_path, scenario)


def test_a_drain_delivers_the_available_messages_and_uses_up_the_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("orders"))
        client.do(credit(5, drain=True))
        assert [body(payload) for _, payload in await client.received(2)] == [b"a", b"b"]
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 5, True)
        # The same with an empty queue, and without credit.
        client.do(credit(3, delivery_count=5, drain=True))
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 8, True)
        client.do(credit(0, delivery_count=8, drain=True))
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.delivery_count) == (0, 8)
        # The receiver works as before afterwards.
        client.do(credit(1, delivery_count=8))
        await put(stage, b"c")
        ((_, payload),) = await client.received(1)
        assert body(payload) == b"c"

    play(tmp_path, scenario)


def test_a_drain_is_not_answered_before_the_available_messages_are_sent(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b")
        client = stage.client()
        await client.attached(of("orders"))
        client.connection.pause()
        client.do(credit(5, drain=True))
        await asyncio.sleep(0.01)
        client.peer.on_events(client.connection.resume())
        # `received` skips other frames: the flow must not be among those.
        assert [body(payload) for _, payload in await client.received(2)] == [b"a", b"b"]
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 5, True)

    play(tmp_path, scenario)


def test_a_receiver_that_waits_can_be_drained(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(of("orders"), given=5)
        client.do(credit(5, drain=True))
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.drain) == (0, True)
        await put(stage, b"a")
        assert [each.message.deliveries for each in await stage.broker.receive(Address("orders"), 5)] == [1]

    play(tmp_path, scenario)


def test_no_more_messages_are_delivered_than_the_credit_allows(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, *(str(number).encode() for number in range(5)))
        client = stage.client()
        await client.attached(of("orders", snd_settle_mode=1), given=2)
        assert [(body(payload), transfer.settled) for transfer, payload in await client.received(2)] == [
            (b"0", True),
            (b"1", True),
        ]
        assert (await stage.broker.counts("orders")).active == 3
        client.do(credit(2, delivery_count=2))
        assert [body(payload) for _, payload in await client.received(2)] == [b"2", b"3"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("drain", [False, True], ids=["waiting", "draining"])
def test_no_call_receives_more_than_fits_into_memory(
    tmp_path: Path, drain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    async def scenario(stage: Stage) -> None:
        receive = stage.broker.receive_now

        async def noted(*given: Any, **named: Any) -> list[Received]:
            found = await receive(*given, **named)
            looks.append(sum(each.message.size for each in found))
            return found

        monkeypatch.setattr(stage.broker.receivers, "receive_now", noted)
        monkeypatch.setattr(receivers, "BYTES_AT_ONCE", 100_000)
        # After many small messages the broker requests many at once, and these are large.
        await put(stage, *[b"x"] * 50)
        for _ in range(8):
            await put(stage, bytes(30_000))
        client = stage.client()
        await client.attached(of("orders", snd_settle_mode=1))
        client.do(credit(58, drain=drain))
        await client.received(58)
        assert max(looks) < 100_000
        assert sum(looks) > 8 * 30_000

    play(tmp_path, scenario)


def test_a_single_message_is_received_whatever_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await put(stage, bytes(5000), bytes(5000))
        await client.attached(of("orders"), given=5)
        assert len(await client.received(2)) == 2

    monkeypatch.setattr(receivers, "BYTES_AT_ONCE", 100)
    play(tmp_path, scenario)


def test_messages_are_dealt_in_turn_and_none_is_lost_with_a_receiver(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        clients = [stage.client() for _ in range(4)]
        for client in clients:
            await client.attached(of("orders"), given=10)
        lost = clients.pop()
        lost.lose()
        await put(stage, *(str(number).encode() for number in range(6)))
        for client in clients:
            assert len(await client.received(2)) == 2
        clients[0].do(Detach(handle=0, closed=True))
        await put(stage, b"6", b"7")
        assert [body(payload) for client in clients[1:] for _, payload in await client.received(1)] == [b"6", b"7"]

    play(tmp_path, scenario)


def test_one_call_waits_for_all_receivers_of_an_entity(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        clients = [stage.client() for _ in range(50)]
        for client in clients:
            await client.attached(of("orders"), given=1)
        waiting = stage.broker._core.arrivals._waiting

        async def calls(count: int) -> None:
            async with asyncio.timeout(PATIENCE):
                while sum(len(events) for events in waiting.values()) != count:
                    await asyncio.sleep(0.001)

        await calls(1)
        await put(stage, b"a")
        await clients[0].received(1)
        await calls(1)
        for client in clients:
            client.lose()
        await calls(0)

    play(tmp_path, scenario)


def test_messages_in_flight_to_a_receiver_that_left_go_to_the_next(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"a", b"b", b"c")
        first, second = stage.client(), stage.client()
        await first.attached(of("orders"), given=5)
        # The broker has begun to receive; the link ends before it is done.
        await asyncio.sleep(0)
        first.lose()
        await second.attached(of("orders"), given=5)
        found = await second.received(3)
        assert [(body(payload), amqp.split(payload).header.delivery_count) for _, payload in found] == [
            (b"a", 0),
            (b"b", 0),
            (b"c", 0),
        ]

    play(tmp_path, scenario)


def test_nothing_is_deleted_for_a_receiver_that_left_or_reduced_its_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        clients = [stage.client() for _ in range(3)]
        for client in clients:
            await client.attached(of("orders", snd_settle_mode=1), given=10)
        await asyncio.sleep(0.01)
        clients[0].lose()
        clients[1].do(credit(1))
        clients[2].do(credit(2))
        await put(stage, *(str(number).encode() for number in range(9)))
        assert len(await clients[1].received(1)) == 1
        assert len(await clients[2].received(2)) == 2
        assert (await stage.broker.counts("orders")).active == 6

    play(tmp_path, scenario)


def session_of(name: str | None, **fields: object) -> Attach:
    source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): name})
    properties = {Symbol("com.microsoft:timeout"): UInt(50), **fields}
    return of(None, source=source, properties=properties)


def test_a_session_is_released_after_the_last_settlements_of_its_holder(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        await put(stage, b"a", b"b", queue="sessions", session="s")
        client = stage.client()
        answer = await client.attached(session_of(None), given=5)
        assert answer.source is not None
        assert answer.source.filter == {"com.microsoft:session-filter": "s"}
        assert (answer.properties or {})[Symbol("com.microsoft:locked-until-utc")] == (
            621_355_968_000_000_000 + (stage.time.now + 60_000_000) * 10
        )
        (first, _), (_, _) = await client.received(2)
        client.do(
            Disposition(role=True, first=first.delivery_id or 0, state=Accepted(), settled=True),
            Detach(handle=0, closed=True),
        )
        other = stage.client()
        while True:
            other.do(session_of("s"))
            answer, _ = await other.next(Attach)
            if answer.source is not None:
                break
            await other.next(Detach)
            other.do(Detach(handle=0, closed=True))
        other.do(credit(5))
        ((_, payload),) = await other.received(1)
        assert body(payload) == b"b"
        assert (await stage.broker.counts("sessions")).active == 1

    play(tmp_path, scenario)


async def not_all_written(client: RawClient) -> None:
    """Wait until some of eight messages are written and the others have to wait."""
    (receiver,) = client.peer.links
    async with asyncio.timeout(PATIENCE):
        while receiver.link.waiting != 3:
            await asyncio.sleep(0.001)


def test_unwritten_messages_are_released_when_the_link_ends(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for number in range(8):
            await put(stage, bytes([number]) * 60_000)
        client = stage.client()
        await client.attached(of("orders"), given=8)
        await not_all_written(client)
        client.do(Detach(handle=0, closed=True))
        found = await stage.broker.receive(Address("orders"), 8, wait=10)
        assert [(each.message.sequence, each.message.deliveries) for each in found] == [(6, 1), (7, 1), (8, 1)]

    play(tmp_path, scenario)


def test_unwritten_messages_are_released_before_their_session(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        for number in range(8):
            await put(stage, bytes([number]) * 60_000, queue="sessions", session="s")
        client = stage.client()
        await client.attached(session_of("s"), given=8)
        await not_all_written(client)
        client.do(Detach(handle=0, closed=True))
        lock = await stage.broker.accept_session(Address("sessions"), None, 10)
        found = await stage.broker.receive(Address("sessions"), 8, session=lock)
        assert [each.message.deliveries for each in found] == [2] * 5 + [1] * 3

    play(tmp_path, scenario)


@pytest.mark.parametrize("drain", [False, True], ids=["waiting", "draining"])
def test_messages_in_flight_are_released_before_their_session(tmp_path: Path, drain: bool) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        await put(stage, b"a", b"b", queue="sessions", session="s")
        client = stage.client()
        await client.attached(session_of("s"))
        client.do(credit(5, drain=drain))
        # The broker has begun to receive; the link ends before it is done.
        await asyncio.sleep(0)
        client.do(Detach(handle=0, closed=True))
        lock = await stage.broker.accept_session(Address("sessions"), None, 10)
        found = await stage.broker.receive(Address("sessions"), 5, session=lock)
        assert [each.message.deliveries for each in found] == [1, 1]

    play(tmp_path, scenario)


def test_without_a_free_session_the_link_is_refused_after_the_clients_time_out(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        client = stage.client()
        condition, text = await client.refused(session_of(None))
        assert (condition, text) == ("com.microsoft:timeout", "No session of 'sessions' became free in time.")
        waiting = session_of(None, **{"com.microsoft:timeout": UInt(60_000)})
        client.do(waiting)
        await asyncio.sleep(0.01)
        client.lose()
        await put(stage, b"a", queue="sessions", session="s")
        # A receiver that has left holds no session.
        await stage.client().attached(session_of(None))

    play(tmp_path, scenario)


def test_an_expired_session_lock_detaches_the_link(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        client = stage.client()
        await client.attached(session_of("s"), given=1)
        # Not at once: a client that is late learns from its own request that the lock is lost.
        stage.time.advance(60)
        await put(stage, b"a", queue="sessions", session="s")
        client.peer.check()
        await stage.client().attached(session_of("s"))
        assert client.peer.links
        stage.time.advance(1)
        client.peer.check()
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "com.microsoft:session-lock-lost"

    play(tmp_path, scenario)


def test_a_drain_that_meets_a_lost_session_lock_is_answered_before_the_link_ends(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        client = stage.client()
        await client.attached(session_of("s"))
        stage.time.advance(60)
        client.do(credit(5, drain=True))
        flow, _ = await client.next(Flow)
        assert (flow.link_credit, flow.drain) == (0, True)
        detach, _ = await client.next(Detach)
        assert detach.error is not None
        assert detach.error.condition == "com.microsoft:session-lock-lost"

    play(tmp_path, scenario)


def test_the_messages_of_a_link_do_not_wait_for_one_another(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = stage.client()
        await client.attached(of("orders"), given=3)
        for number in range(3):
            await put(stage, str(number).encode())
            transfer, payload = await client.next(Transfer)
            assert (transfer.delivery_id, body(payload)) == (number, str(number).encode())

    play(tmp_path, scenario)


def test_a_client_at_its_limit_gets_messages_after_locks_expire_and_late_settlements_are_answered(
    tmp_path: Path,
) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, *(str(number).encode() for number in range(5)))
        client = stage.client()
        output = client.connection.out
        output.most_unsettled = 3
        await client.attached(of("orders", rcv_settle_mode=1, snd_settle_mode=0), given=5_000_000)
        found = await client.received(3)
        ids = [transfer.delivery_id or 0 for transfer, _ in found]
        assert (output.unsettled, output.is_stuck) == (3, True)
        client.peer.make_room()
        stage.time.advance(30)
        tag = found[1][0].delivery_tag
        assert tag is not None
        await stage.broker.renew_locks(Address("orders"), [tag_of(tag)])
        stage.time.advance(31)
        # The lock of one was renewed; the others are dropped.
        client.peer.make_room()
        await until(lambda: output.unsettled == 1)
        client.peer.on_events(client.connection.relieve())
        more = await client.received(2)
        assert len(more) == 2
        settle(client, ids, Accepted())
        outcomes = await client.outcomes(3)
        assert outcomes[ids[1]] == Accepted()
        for late in (ids[0], ids[2]):
            assert isinstance(outcomes[late], Rejected)
            assert outcomes[late].error.condition == "com.microsoft:message-lock-lost"
        assert client.connection.sessions[0].outbound.lapsed == {}
        client.lose()
        assert output.unsettled == 0

    play(tmp_path, scenario)
