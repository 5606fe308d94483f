"""Transactions, frame by frame."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncebus import amqp
from oncebus.amqp.message import AmqpValue
from oncebus.amqp.outcomes import Accepted, AmqpError, Declared, Modified, Rejected, Released, TransactionalState
from oncebus.amqp.performatives import Coordinator, Detach, Disposition, End, Flow, Source, Target, Transfer
from oncebus.amqp.types import Array, Described, Long, Symbol, Timestamp, ULong
from oncebus.broker.addresses import Address
from oncebus.engine.store import Action, Mode, Settlement
from oncebus.model.entities import Catalogue, Queue, Subscription, Topic
from oncebus.protocols.servicebus import AmqpLimits
from oncebus.protocols.servicebus.messages import incoming_message, tag_of
from tests.amqp.client import BEGIN, credit, receiver, sender, transfer, written

from .bus import PATIENCE
from .raw import RawClient, Stage, message, of, play, request, to

CONTROL, SENDER, RECEIVER, REQUESTS, REPLIES, OTHER = 9, 0, 1, 2, 3, 4
SPANS = "Local transactions cannot span multiple top-level entities such as queue or topic."


def control(code: int, *fields: object) -> bytes:
    return b"".join(amqp.encode_message(None, None, AmqpValue(Described(ULong(code), list(fields)))))


class Client:
    """A client with a coordinator link, and links to `orders` as a test needs them."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.txn_id = b""

    @classmethod
    async def of(cls, stage: Stage, *, first: bool = False, receives: int = 0, **options: Any) -> Client:
        """Attach the coordinator, by default after a sender to `orders`, and a receiver with this credit."""
        client = cls(stage.client(**options))
        if first:
            await client.attach_coordinator()
        await client.raw.attached(to("orders", handle=SENDER))
        if not first:
            await client.attach_coordinator()
        if receives:
            await client.raw.attached(of("orders", handle=RECEIVER), receives)
        await client.declare()
        return client

    async def attach_coordinator(self) -> None:
        answer = await self.raw.attached(sender("c", CONTROL, target=Coordinator()))
        assert isinstance(answer.target, Coordinator)
        assert answer.max_message_size
        flow, _ = await self.raw.next(Flow)
        assert (flow.link_credit or 0) >= 2

    async def answer(self, *payloads: bytes, **fields: Any) -> Any:
        """Transfer one or more deliveries and return the outcome of the last."""
        last = self.raw.transfer(*payloads, **fields)[-1]
        while True:
            disposition, _ = await self.raw.next(Disposition)
            if disposition.role and disposition.first <= last <= (disposition.last or 0):
                assert disposition.settled
                return disposition.state

    async def declare(self) -> bytes:
        outcome = await self.answer(control(0x31, None), handle=CONTROL)
        assert isinstance(outcome, Declared)
        self.txn_id = outcome.txn_id
        return self.txn_id

    async def discharge(self, *, fail: bool = False) -> Any:
        return await self.answer(control(0x32, self.txn_id, fail), handle=CONTROL)

    async def commit(self) -> None:
        assert await self.discharge() == Accepted()

    async def rolled_back(self) -> AmqpError:
        outcome = await self.discharge()
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        return outcome.error

    @property
    def state(self) -> TransactionalState:
        return TransactionalState(self.txn_id)

    async def send(self, *bodies: bytes, handle: int = SENDER, **properties: Any) -> Any:
        return await self.answer(*(message(body, **properties) for body in bodies), handle=handle, state=self.state)

    async def received(self) -> Transfer:
        return (await self.raw.next(Transfer))[0]

    async def dispose(self, delivery: Transfer, outcome: Any) -> Disposition:
        """Report an outcome in the transaction and return the answer."""
        state = TransactionalState(self.txn_id, outcome)
        self.raw.do(Disposition(role=True, first=delivery.delivery_id or 0, settled=False, state=state))
        return (await self.raw.next(Disposition))[0]

    async def settle(self, delivery: Transfer, outcome: Any) -> Disposition:
        """Report an outcome outside of any transaction and return the answer."""
        self.raw.do(Disposition(role=True, first=delivery.delivery_id or 0, settled=False, state=outcome))
        return (await self.raw.next(Disposition))[0]

    async def attach_management(self, entity: str = "orders") -> None:
        await self.raw.attached(to(f"{entity}/$management", "m", REQUESTS))
        await self.raw.attached(of(f"{entity}/$management", "n", REPLIES), 100)

    async def request(self, operation: str, body: Any) -> tuple[int, Any, Any]:
        """Make a request in the transaction. Return status, condition and body."""
        self.raw.transfer(
            request(f"com.microsoft:{operation}", body, message_id="1"), handle=REQUESTS, state=self.state, settled=True
        )
        _, payload = await self.raw.next(Transfer)
        parts = amqp.split(payload)
        properties: Any = amqp.application_properties(parts.head)
        content: Any = amqp.decode_body(parts.body)
        return properties["statusCode"], properties.get("errorCondition"), content.value


def created(entity: Subscription, catalogue: Catalogue, now: int) -> Catalogue:
    return catalogue.create(entity, now)


async def put(stage: Stage, *bodies: bytes, path: str = "orders") -> None:
    await stage.broker.send(path, [incoming_message(message(body)) for body in bodies])


async def taken(stage: Stage, path: str = "orders") -> list[bytes]:
    """Receive and delete all messages, after everything sent is visible."""
    await stage.broker.counts(path)
    found = await stage.broker.receive(Address(path), 100, mode=Mode.RECEIVE_AND_DELETE)
    return [bytes(amqp.decode_body(each.body)) for each in found]  # type: ignore[arg-type]


def test_a_commit_sends_and_settles_together(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        delivery = await client.received()
        assert await client.send(b"a") == TransactionalState(client.txn_id, Accepted())
        assert await client.send(b"b", b"c") == TransactionalState(client.txn_id, Accepted())
        answer = await client.dispose(delivery, Accepted())
        # Provisional, so not settled yet.
        assert (answer.settled, answer.state) == (False, TransactionalState(client.txn_id, Accepted()))
        assert (await stage.broker.counts("orders")).active == 1
        client.raw.transfer(control(0x32, client.txn_id, False), handle=CONTROL)
        settled, _ = await client.raw.next(Disposition)
        assert (settled.role, settled.settled, settled.state) == (False, True, answer.state)
        accepted, _ = await client.raw.next(Disposition)
        assert (accepted.role, accepted.settled, accepted.state) == (True, True, Accepted())
        assert await taken(stage) == [b"a", b"b", b"c"]

    play(tmp_path, scenario)


def test_deliveries_with_the_same_id_stay_in_their_transaction(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        again = transfer(100, SENDER, state=client.state)
        client.raw._raw(written(again, message(b"a")) + written(again, message(b"b")))
        assert await taken(stage) == []
        await client.commit()
        assert await taken(stage) == [b"a", b"b"]

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (Modified(None, True), (0, 1, 0)),
        (Modified(), (1, 0, 0)),
        (Rejected(AmqpError("com.microsoft:dead-letter")), (0, 0, 1)),
        (Released(), (1, 0, 0)),
    ],
)
def test_every_outcome_can_be_part_of_a_transaction(tmp_path: Path, outcome: Any, counts: tuple[int, int, int]) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        answer = await client.dispose(await client.received(), outcome)
        assert isinstance(answer.state, TransactionalState)
        assert type(answer.state.outcome) is type(outcome)
        await client.commit()
        found = await stage.broker.counts("orders")
        assert (found.active, found.deferred, found.dead_letter) == counts

    play(tmp_path, scenario)


def test_a_rollback_undoes_everything_and_the_lock_still_holds(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1", b"2")
        client = await Client.of(stage, receives=2)
        one, two = await client.received(), await client.received()
        await client.send(b"a")
        await client.dispose(one, Accepted())
        await client.dispose(two, Modified())
        assert await client.discharge(fail=True) == Accepted()
        assert (await stage.broker.counts("orders")).active == 2
        answer = await client.settle(one, Accepted())
        assert (answer.settled, answer.state) == (True, Accepted())
        # And again in another transaction.
        await client.declare()
        await client.dispose(two, Accepted())
        await client.commit()
        assert await taken(stage) == []

    play(tmp_path, scenario)


LATER = [Released(), Modified(), Rejected(), Accepted()]


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("later", LATER, ids=lambda each: type(each).__name__)
def test_a_later_outcome_outside_of_the_transaction_does_not_touch_the_lock(
    tmp_path: Path, later: Any, is_settled: bool
) -> None:
    """Java releases what it has settled in a transaction, before the discharge."""

    async def scenario(stage: Stage) -> None:
        await put(stage, b"1", b"2")
        client = await Client.of(stage, receives=2)
        one, two = await client.received(), await client.received()
        await client.dispose(one, Accepted())
        client.raw.do(Disposition(role=True, first=one.delivery_id or 0, settled=is_settled, state=later))
        # The link still handles other decisions.
        assert (await client.dispose(two, Accepted())).state == TransactionalState(client.txn_id, Accepted())
        await client.send(b"a")
        await client.commit()
        counts = await stage.broker.counts("orders")
        assert (counts.completed, counts.abandoned, counts.dead_letter) == (2, 0, 0)
        assert await taken(stage) == [b"a"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("how", ["rollback", "failed commit", "lost client"])
def test_a_later_outcome_counts_once_the_transaction_is_rolled_back(tmp_path: Path, how: str, is_settled: bool) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        await stage.queue("other")
        client = await Client.of(stage, first=True, receives=1)
        await client.raw.attached(to("other", "o", OTHER))
        delivery = await client.received()
        await client.dispose(delivery, Accepted())
        client.raw.do(Disposition(role=True, first=delivery.delivery_id or 0, settled=is_settled, state=Released()))
        match how:
            case "rollback":
                assert await client.discharge(fail=True) == Accepted()
            case "failed commit":
                await client.send(b"a", handle=OTHER)
                await stage.broker.change(lambda catalogue, _: catalogue.delete(catalogue.queue("other")))
                await client.rolled_back()
            case "lost client":
                client.raw.lose()
        (again,) = await stage.broker.receive(Address("orders"), 1, wait=PATIENCE)
        assert again.message.deliveries == 1, "released, so the first delivery does not count"

    play(tmp_path, scenario)


def test_requests_outside_of_the_transaction_are_refused_for_its_messages(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        await client.attach_management()
        delivery = await client.received()
        token = tag_of(delivery.delivery_tag or b"")
        body = {"disposition-status": "completed", "lock-tokens": Array(uuid.UUID, [uuid.UUID(bytes=token)])}
        await client.dispose(delivery, Accepted())
        own, client.txn_id = client.txn_id, b""
        client.raw.transfer(
            request("com.microsoft:update-disposition", body, message_id="1"), handle=REQUESTS, settled=True
        )
        _, payload = await client.raw.next(Transfer)
        properties: Any = amqp.application_properties(amqp.split(payload).head)
        assert (properties["statusCode"], properties["errorCondition"]) == (400, "amqp:not-allowed")
        # Nor can another transaction have it.
        await client.declare()
        refused = await client.dispose(delivery, Accepted())
        assert isinstance(refused.state, TransactionalState)
        assert isinstance(refused.state.outcome, Rejected)
        assert "transaction" in ((await client.rolled_back()).description or "")
        client.txn_id = own
        await client.commit()
        assert await taken(stage) == []

    play(tmp_path, scenario)


def test_a_failed_send_fails_the_discharge(tmp_path: Path) -> None:
    """Java takes any outcome of a transactional send for success."""

    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        await client.send(b"good")
        for bad in (message(b"bad", message_id="x" * 129), b"no message"):
            outcome = await client.answer(bad, handle=SENDER, state=client.state)
            assert isinstance(outcome, TransactionalState)
            assert isinstance(outcome.outcome, Rejected)
            error = await client.rolled_back()
            assert error.condition == "amqp:transaction:rollback"
            assert error.description
            assert error.description.startswith("The transaction was rolled back. ")
            await client.declare()
        # Sent settled, nobody hears of the failure before the discharge.
        client.raw.transfer(message(b"bad", message_id="x" * 129), handle=SENDER, state=client.state, settled=True)
        assert "MessageId" in ((await client.rolled_back()).description or "")
        assert await taken(stage) == []

    play(tmp_path, scenario)


def test_a_lost_lock_fails_the_request_or_the_discharge(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("short", lock_duration=10_000_000)
        await put(stage, b"1", path="short")
        client = await Client.of(stage)
        await client.raw.attached(of("short", handle=RECEIVER), 1)
        await client.raw.attached(to("short", "s2", handle=5))
        delivery = await client.received()
        await client.send(b"a", handle=5)
        await client.dispose(delivery, Accepted())
        stage.time.advance(10)
        error = await client.rolled_back()
        assert (error.condition, (error.description or "")[:51]) == (
            "amqp:transaction:rollback",
            "The transaction was rolled back. The lock supplied ",
        )
        await client.declare()
        await client.send(b"b", handle=5)
        answer = await client.dispose(delivery, Accepted())
        assert isinstance(answer.state, TransactionalState)
        assert isinstance(answer.state.outcome, Rejected)
        assert answer.state.outcome.error is not None
        assert answer.state.outcome.error.condition == "com.microsoft:message-lock-lost"
        assert (await client.rolled_back()).condition == "amqp:transaction:rollback"
        assert (await stage.broker.counts("short")).active == 1

    play(tmp_path, scenario)


def test_an_unknown_transaction_is_refused_everywhere(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        await client.attach_management()
        delivery = await client.received()
        await client.commit()
        unknown = "amqp:transaction:unknown-id"
        outcome = await client.send(b"x")
        assert outcome.error.condition == unknown
        answer = await client.dispose(delivery, Accepted())
        assert not answer.settled
        assert isinstance(answer.state, Rejected)
        assert answer.state.error == AmqpError(unknown, "The transaction is not declared, or it has ended.")
        assert (await client.rolled_back()).condition == unknown
        assert (await client.request("cancel-scheduled-message", {"sequence-numbers": [1]}))[:2] == (404, unknown)
        # The lock still holds.
        assert (await client.settle(delivery, Accepted())).state == Accepted()
        # Nor is a transaction of another connection known.
        other = await Client.of(stage)
        client.txn_id = other.txn_id
        assert (await client.rolled_back()).condition == unknown
        await other.commit()

    play(tmp_path, scenario)


def test_requests_can_follow_each_other_without_waiting(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        delivery = await client.received()
        raw = client.raw
        number = raw._next
        raw._next += 3
        accept = TransactionalState(client.txn_id, Accepted())
        raw._raw(
            written(transfer(number, SENDER, delivery_tag=b"1"), message(b"before"))
            + written(transfer(number + 1, SENDER, delivery_tag=b"2", state=client.state), message(b"a"))
            + written(Disposition(role=True, first=delivery.delivery_id or 0, state=accept))
            + written(transfer(number + 2, CONTROL, delivery_tag=b"3"), control(0x32, client.txn_id, False))
        )
        states: list[Any] = []
        while len(states) < 5:
            disposition, _ = await raw.next(Disposition)
            states.append(disposition.state)
        assert states[-1] == Accepted()
        assert await taken(stage) == [b"before", b"a"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("how", ["link", "connection", "session"])
def test_what_a_lost_coordinator_leaves_is_rolled_back(tmp_path: Path, how: str) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        delivery = await client.received()
        await client.send(b"a")
        await client.dispose(delivery, Accepted())
        if how == "link":
            client.raw.do(Detach(handle=CONTROL, closed=True))
            await client.raw.next(Detach)
            assert isinstance(await client.send(b"b"), Rejected)
        elif how == "connection":
            client.raw.lose()
        else:
            client.raw.do(End())
        assert len(client.raw.peer.transactions) == 0
        assert stage.broker._core.committer.held == 0
        token = tag_of(delivery.delivery_tag or b"")
        outcomes = await stage.broker.settle(Address("orders"), [Settlement(Action.COMPLETE, token)])
        assert outcomes[0].value == "done"
        assert await taken(stage) == []

    play(tmp_path, scenario)


def test_a_transaction_outlives_the_links_that_it_used(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        client = await Client.of(stage, receives=1)
        delivery = await client.received()
        await client.send(b"a")
        await client.dispose(delivery, Accepted())
        for handle in (SENDER, RECEIVER):
            client.raw.do(Detach(handle=handle, closed=True))
            await client.raw.next(Detach)
        await client.commit()
        assert await taken(stage) == [b"a"]

    play(tmp_path, scenario)


def test_a_client_may_settle_first(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1", b"2")
        client = await Client.of(stage, receives=2)
        one, two = await client.received(), await client.received()
        state = TransactionalState(client.txn_id, Accepted())
        client.raw.do(Disposition(role=True, first=one.delivery_id or 0, settled=True, state=state))
        await client.commit()
        await client.declare()
        state = TransactionalState(client.txn_id, Accepted())
        client.raw.do(Disposition(role=True, first=two.delivery_id or 0, settled=True, state=state))
        assert await client.discharge(fail=True) == Accepted()
        # The client cannot settle it again, so it is abandoned.
        client.raw.do(credit(3, RECEIVER, delivery_count=0))
        again, payload = await client.raw.next(Transfer)
        assert again.delivery_tag != two.delivery_tag
        assert amqp.split(payload).header.delivery_count == 1

    play(tmp_path, scenario)


@pytest.mark.parametrize("how", ["a request fails", "the commit fails", "it has failed before", "the client leaves"])
def test_a_message_that_was_settled_first_comes_back_however_the_transaction_ends(tmp_path: Path, how: str) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1")
        await stage.queue("other")
        client = await Client.of(stage, first=True, receives=1)
        await client.raw.attached(to("other", "o", OTHER))
        one = await client.received()
        settled = Disposition(
            role=True, first=one.delivery_id or 0, settled=True, state=TransactionalState(client.txn_id, Accepted())
        )
        if how == "it has failed before":
            await client.send(b"bad", message_id="x" * 129)
        client.raw.do(settled)
        match how:
            case "a request fails":
                await client.send(b"bad", message_id="x" * 129)
            case "the commit fails":
                await client.send(b"a", handle=OTHER)
                await stage.broker.change(lambda catalogue, _: catalogue.delete(catalogue.queue("other")))
                await client.rolled_back()
            case "the client leaves":
                client.raw.lose()
        (again,) = await stage.broker.receive(Address("orders"), 1, wait=PATIENCE)
        assert again.message.deliveries == 2

    play(tmp_path, scenario)


def test_two_minutes_after_the_first_request_it_is_too_late(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        stage.time.advance(1000)
        await client.send(b"a")
        stage.time.advance(120)
        outcome = await client.send(b"b")
        assert outcome.outcome.error.condition == "amqp:transaction:rollback"
        assert "within 2 minutes" in ((await client.rolled_back()).description or "")
        assert await taken(stage) == []

    play(tmp_path, scenario)


def test_a_batch_counts_all_its_messages(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        batch = b"".join(amqp.encode_body(message(b"%d" % number)) for number in range(60))
        states = [
            await client.answer(batch, handle=SENDER, state=client.state, message_format=0x80013700) for _ in "ab"
        ]
        assert states[0].outcome == Accepted()
        assert states[1].outcome.error == AmqpError(
            "amqp:resource-limit-exceeded", "Cannot send more than 100 messages in a single transaction."
        )
        await client.rolled_back()

    play(tmp_path, scenario)


def test_a_connection_has_a_limited_number_of_transactions(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        await client.declare()
        refused = await client.answer(control(0x31, None), handle=CONTROL)
        assert refused.error.condition == "amqp:resource-limit-exceeded"
        await client.commit()
        await client.declare()
        # Before it has authenticated, a client has fewer. It needs no token to declare, but for its other links.
        stranger = Client(stage.client(is_signed_in=False))
        await stranger.attach_coordinator()
        await stranger.declare()
        assert isinstance(await stranger.answer(control(0x31, None), handle=CONTROL), Rejected)
        assert (await stranger.raw.refused(to("orders", handle=SENDER)))[0] == "amqp:unauthorized-access"

    play(tmp_path, scenario, AmqpLimits(transactions=2, stranger_transactions=1))


def test_the_coordinator_refuses_what_it_does_not_understand(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        for payload, condition in (
            (b"", "amqp:decode-error"),
            (message(), "amqp:decode-error"),
            (control(0x31, b"global"), "amqp:not-implemented"),
            (control(0x32, b"?"), "amqp:transaction:unknown-id"),
        ):
            outcome = await client.answer(payload, handle=CONTROL)
            assert outcome.error.condition == condition
        for _ in range(300):
            await client.declare()
            await client.commit()

    play(tmp_path, scenario)


# Several entities


def test_a_transaction_keeps_to_one_entity(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("other")
        client = await Client.of(stage)
        await client.raw.attached(to("other", "o", 5))
        await client.send(b"a")
        outcome = await client.send(b"b", handle=5)
        assert outcome.outcome.error == AmqpError("amqp:not-allowed", SPANS)
        assert (await client.rolled_back()).description == f"The transaction was rolled back. {SPANS}"
        assert (await taken(stage), await taken(stage, "other")) == ([], [])

    play(tmp_path, scenario)


def test_a_session_that_begins_with_the_coordinator_sends_via_its_first_entity(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("other")
        await stage.broker.change(lambda catalogue, now: catalogue.create(Topic(name="t"), now))
        await stage.broker.change(lambda catalogue, now: catalogue.create(Subscription(topic="t", name="s"), now))
        await put(stage, b"1")
        client = await Client.of(stage, first=True, receives=1)
        for name, handle in (("other", 5), ("t", 6)):
            await client.raw.attached(to(name, name, handle))
        # Only from the first one can it receive.
        for refused in ("other", "t/Subscriptions/s"):
            assert await client.raw.refused(of(refused, "no", 7)) == ("amqp:not-allowed", SPANS)
        await client.dispose(await client.received(), Accepted())
        await client.send(b"a", handle=5)
        await client.send(b"b", handle=6)
        await client.send(b"c")
        await client.commit()
        assert await taken(stage) == [b"c"]
        assert await taken(stage, "other") == [b"a"]
        assert await taken(stage, "t/Subscriptions/s") == [b"b"]

    play(tmp_path, scenario)


def test_a_topic_and_its_subscriptions_are_one_entity(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.broker.change(lambda catalogue, now: catalogue.create(Topic(name="t"), now))
        for made in (Subscription(topic="t", name="s1"), Subscription(topic="t", name="s2")):
            await stage.broker.change(partial(created, made))
        client = Client(stage.client())
        await client.attach_coordinator()
        await client.declare()
        await client.raw.attached(to("t", handle=SENDER))
        await client.raw.attached(of("t/Subscriptions/s1", "1", RECEIVER), 1)
        await client.raw.attached(of("t/Subscriptions/s2", "2", 4), 1)
        await put(stage, b"1", path="t")
        for delivery in [await client.received() for _ in "12"]:
            await client.dispose(delivery, Accepted())
        await client.send(b"2")
        await client.commit()
        assert await taken(stage, "t/Subscriptions/s1") == [b"2"]
        assert await taken(stage, "t/Subscriptions/s2") == [b"2"]

    play(tmp_path, scenario)


def test_a_transaction_is_valid_in_all_sessions_of_its_connection(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = Client(stage.client())
        await client.attach_coordinator()
        await client.declare()
        raw = client.raw
        # Links in sessions of their own, as most clients have them: no entity goes via another one there.
        await stage.queue("other")
        raw._raw(written(BEGIN, channel=1) + written(sender("s", 0, target=Target("orders")), channel=1))
        raw._raw(written(BEGIN, channel=2) + written(receiver("r", 0, source=Source("other")), channel=2))
        raw._raw(written(transfer(0, 0, state=client.state), message(b"a"), channel=1))
        disposition, _ = await raw.next(Disposition)
        assert disposition.state == TransactionalState(client.txn_id, Accepted())
        await client.commit()
        assert await taken(stage) == [b"a"]
        # A receiver of another entity is not refused there.
        await put(stage, b"1", path="other")
        raw._raw(written(credit(1, 0), channel=2))
        await client.received()

    play(tmp_path, scenario)


# $management


def test_requests_to_management_take_part(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage, b"1", b"2")
        client = await Client.of(stage)
        await client.attach_management()
        later = stage.time.now // 1000 + 600_000

        def scheduled(body: bytes) -> dict[str, object]:
            annotations = {"x-opt-scheduled-enqueue-time": Timestamp(later)}
            head, content = amqp.encode_message(None, None, body)
            return {
                "messages": [
                    {
                        "message": b"".join(amqp.deliverable(head, content, amqp.Header(), annotations)),
                        "message-id": "x",
                    }
                ]
            }

        status, _, answer = await client.request("schedule-message", scheduled(b"rolled back"))
        assert status == 200
        await client.discharge(fail=True)
        await client.declare()
        status, _, answer = await client.request("schedule-message", scheduled(b"later"))
        assert status == 200
        (number,) = answer["sequence-numbers"]
        one, two = await stage.broker.receive(Address("orders"), 2, wait=20)
        assert one.message.token is not None
        body = {"disposition-status": "completed", "lock-tokens": [uuid.UUID(bytes=one.message.token)]}
        assert (await client.request("update-disposition", body))[0] == 200
        assert (await stage.broker.counts("orders")).active == 2
        await client.commit()
        counts = await stage.broker.counts("orders")
        assert (counts.active, counts.scheduled) == (1, 1)
        # Cancelled in another transaction; a second time fails it.
        await client.declare()
        cancel = {"sequence-numbers": Array(Long, [number])}
        assert (await client.request("cancel-scheduled-message", cancel))[0] == 200
        assert (await stage.broker.counts("orders")).scheduled == 1
        await client.commit()
        assert (await stage.broker.counts("orders")).scheduled == 0
        await client.declare()
        assert (await client.request("cancel-scheduled-message", cancel))[:2] == (
            404,
            "com.microsoft:message-not-found",
        )
        assert (await client.request("update-disposition", body))[:2] == (400, "amqp:transaction:rollback")
        await client.rolled_back()
        # What does not take part runs at once.
        await client.declare()
        tokens = Array(uuid.UUID, [uuid.UUID(bytes=two.message.token or b"")])
        assert (await client.request("renew-lock", {"lock-tokens": tokens}))[0] == 200

    play(tmp_path, scenario)


def test_the_state_of_a_session_takes_part(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        client = Client(stage.client())
        await client.attach_coordinator()
        await client.declare()
        source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): "s"})
        await client.raw.attached(of("sessions", "r", RECEIVER, source=source))
        await client.attach_management("sessions")
        body = {"session-id": "s", "session-state": b"state"}
        assert (await client.request("set-session-state", body))[0] == 200
        status, _, answer = await client.request("get-session-state", {"session-id": "s"})
        assert (status, answer["session-state"]) == (200, None)
        await client.commit()
        await client.declare()
        _, _, answer = await client.request("get-session-state", {"session-id": "s"})
        assert answer["session-state"] == b"state"

    play(tmp_path, scenario)


def test_a_request_that_is_given_up_fails_the_transaction(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        await client.attach_management()
        await client.send(b"a")
        stage.pipeline.is_paused = True
        # It waits until the message is visible that was sent before.
        await put(stage, b"waits")
        body = {"sequence-numbers": Array(Long, [1])}
        client.raw.transfer(
            request("com.microsoft:cancel-scheduled-message", body, message_id="1"), handle=REQUESTS, state=client.state
        )
        await asyncio.sleep(0)
        client.raw.do(Detach(handle=REQUESTS, closed=True))
        error = await client.rolled_back()
        assert error.description == "The transaction was rolled back. A request of the transaction was not finished."
        stage.pipeline.is_paused = False

    play(tmp_path, scenario)


def test_an_entity_that_is_deleted_fails_the_discharge(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        client = await Client.of(stage)
        await client.send(b"a")
        await stage.broker.change(lambda catalogue, now: catalogue.delete(Queue(name="orders")))
        error = await client.rolled_back()
        assert (error.condition, error.description) == (
            "amqp:transaction:rollback",
            "The transaction was rolled back. The messaging entity 'sb://localhost/orders' could not be found.",
        )

    play(tmp_path, scenario)
