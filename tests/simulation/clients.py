"""Clients that follow the plans of the history checker, and call the broker itself.

The broker of a life dies and comes back. An operation that it was doing then has no answer. Besides, answers get lost,
and clients vanish in the middle of a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, TypeVar

from oncebus import amqp
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.broker.sending import Incoming
from oncebus.broker.transactions import Transaction
from oncebus.engine.store import Action, Mode, Outcome, SessionLock, Settlement, SubQueue
from oncebus.values.errors import OncebusError
from tests.history.entities import DEAD_LETTERS, SINKS, uid_of, wire_form
from tests.history.history import FAILED, OK, UNKNOWN, Answer, Recorder, Refused, Unanswered
from tests.history.operations import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    HTTP,
    RELEASE,
    RENEW,
    Cancel,
    ChangeRule,
    ChangeWindow,
    Forget,
    Message,
    Pause,
    Receive,
    ReceiveDeferred,
    Recreate,
    Resubmit,
    Send,
    Step,
    Transact,
)
from tests.simulation.namespace import Change, change_rule, change_window, create, delete

T = TypeVar("T")
Messages = tuple[Message, ...]

_ATTEMPTS = 4
_WAIT = 0.5
_LOST, _VANISHES = 0.03, 0.05
_ACTIONS = {
    COMPLETE: Action.COMPLETE,
    ABANDON: Action.ABANDON,
    DEFER: Action.DEFER,
    DEAD_LETTER: Action.DEAD_LETTER,
    RELEASE: Action.RELEASE,
}


class Clocks(NamedTuple):
    """What clients know of the time, in microseconds."""

    wall: Callable[[], int]


class Client:
    """A client that does one step after another. It outlives the broker that it talks to."""

    def __init__(self, name: str, recorder: Recorder, steps: Iterator[Step], chance: Random, clocks: Clocks) -> None:
        self.name = name
        self.done = 0
        self._recorder = recorder
        self._steps = steps
        self._chance = chance
        self._clocks = clocks
        self._broker: Broker | None = None
        self._scheduled: list[tuple[str, str, int]] = []
        self._deferred: list[tuple[str, str | None, int]] = []
        self._incarnation = 0
        self._copied = 0
        self._unfinished: Callable[[], Awaitable[None]] | None = None

    async def run(self, broker: Broker, may_go_on: Callable[[], bool]) -> None:
        """Do steps as long as it may. What a crash interrupted and must be finished comes first."""
        self._broker = broker
        if self._unfinished is not None:
            await self._unfinished()
        while may_go_on():
            self.done += 1
            await self._do(next(self._steps))

    async def _do(self, step: Step) -> None:
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Send():
                await self._retry(step.messages, lambda messages: self._send(step.entity, messages))
            case Transact():
                await self._retry(step.messages, lambda messages: self._transact(step, messages))
            case Receive(place, _, actions, session):
                await self.receive(place, session, actions)
            case Cancel(pick):
                await self._cancel(pick)
            case ReceiveDeferred(pick):
                await self._receive_deferred(pick)
            case Resubmit(place, copies):
                await (self._resubmit_copies(place) if copies else self._resubmit(place))
            case ChangeWindow(entity, window):
                await self._until_known("window", change_window(entity, window), entity=entity, window=window)
            case ChangeRule(place, colour):
                await self._until_known("rule", change_rule(place, colour), place=place, colour=colour)
            case Forget(entity, name):
                with self._record("forget", entity=entity, id=name) as answer:
                    found = await self._ask(self._live.forget(entity, name))
                    answer.result["number"] = None if found is None else found.sequence
            case Recreate(entity):
                self._incarnation += 1
                self._unfinished = lambda: self._recreate(entity)
                await self._recreate(entity)

    @property
    def _live(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @contextmanager
    def _record(self, kind: str, **args: Any) -> Iterator[Answer]:
        with self._recorder.operation(self.name, kind, **args) as answer:
            yield answer

    async def _ask(self, call: Awaitable[T]) -> T:
        """Make one call. Its answer may get lost, and the client may vanish before it comes."""
        draw, patience = self._chance.random(), self._chance.random() * 0.01
        try:
            if draw > _VANISHES:
                answer = await call
            else:
                # The time-out cancels the call wherever it is.
                async with asyncio.timeout(patience):
                    answer = await call
        except OncebusError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        except TimeoutError:
            raise Unanswered("the client vanished") from None
        except Exception as error:
            raise Unanswered(f"unable to process the request: {error!r}") from error
        if 1 - draw < _LOST:
            raise Unanswered("the answer got lost")
        return answer

    # Sending

    async def _retry(self, messages: Messages, send: Callable[[Messages], Awaitable[str]]) -> None:
        for attempt in range(_ATTEMPTS):
            if attempt:
                messages = tuple(replace(each, uid=f"{each.uid}~") for each in messages)
            if await send(messages) != UNKNOWN:
                return
            await asyncio.sleep(0.1)

    def _args_of_send(self, entity: str, messages: Messages, now: int) -> dict[str, Any]:
        return {
            "entity": entity,
            "via": HTTP,
            "incarnation": self._incarnation if entity == "recreated" else 0,
            "messages": [
                {
                    "uid": each.uid,
                    "id": each.id,
                    "colour": each.colour,
                    "session": each.session,
                    "due": None if each.due is None else now + round(each.due * 1e6),
                }
                for each in messages
            ],
        }

    async def _send(self, entity: str, messages: Messages) -> str:
        now = self._clocks.wall()
        with self._record("send", **self._args_of_send(entity, messages, now)) as answer:
            numbers = await self._ask(self._live.send(entity, [_incoming(entity, each, now) for each in messages]))
            if len(messages) == 1 and messages[0].due is not None:
                answer.result["numbers"] = numbers
                self._scheduled.append((entity, messages[0].uid, numbers[0]))
        return answer.outcome

    async def _transact(self, step: Transact, messages: Messages) -> str:
        now, locked, numbers = self._clocks.wall(), list[tuple[dict[str, Any], bytes]](), list[int | None]()
        since, problem = self._recorder.now(), None
        broker, address = self._live, Address(step.entity)
        transactions = broker.transactions()
        transaction = transactions.declare(most=10)
        try:
            if step.settles:
                with self._receiving(step.entity, None, step.settles) as answer:
                    received = await self._ask(broker.receive(address, step.settles, wait=_WAIT))
                    locked = [(_record_of(each), _token(each)) for each in received]
                    answer.result["messages"] = [record for record, _ in locked]
            if locked:
                with transactions.work(transaction.id) as work:
                    outcomes = await self._ask(
                        work.settle(address, [Settlement(Action.COMPLETE, token) for _, token in locked])
                    )
                _check(outcomes)
            for each in messages:
                with transactions.work(transaction.id) as work:
                    incoming = [_incoming(step.entity, each, now)]
                    if each.due is None:
                        work.send(step.entity, incoming)
                        numbers.append(None)
                    else:
                        numbers += await self._ask(work.schedule(step.entity, incoming))
            if step.rival is not None and step.commits:
                await self._send(step.entity, (replace(step.rival, uid=messages[0].uid + "!"),))
        except (Refused, Unanswered, OncebusError) as error:
            problem = Refused(f"not discharged: {error}")
        deals = {"settles": len(locked), "since": since}
        operations = [
            ("send", {**self._args_of_send(step.entity, messages, now), **deals}),
            *(
                ("settle", {"place": step.entity, **_which(record), "action": COMPLETE, **deals})
                for record, _ in locked
            ),
        ]
        with self._recorder.together(self.name, operations) as answers:
            if problem is not None:
                raise problem
            answers[0].result["numbers"] = numbers
            await self._discharge(step, transactions.take(transaction.id), [token for _, token in locked])
        if answers[0].is_ok:
            pairs = zip(messages, numbers, strict=True)
            self._scheduled += [(step.entity, each.uid, number) for each, number in pairs if number is not None]
        return answers[0].outcome

    async def _discharge(self, step: Transact, transaction: Transaction, tokens: Sequence[bytes]) -> None:
        """Commit or roll back, with outcomes outside of the transaction beside it."""
        address = Address(step.entity)
        beside: asyncio.Task[Any] | None = None
        if tokens and step.outside is not None:
            action = _ACTIONS[step.outside]
            beside = asyncio.ensure_future(self._live.settle(address, [Settlement(action, token) for token in tokens]))
            if step.is_outside_first:
                await asyncio.sleep(0)
        try:
            if not step.commits:
                transaction.roll_back()
                raise Refused("rolled back")
            await self._ask(transaction.commit())
        finally:
            if beside is not None:
                await asyncio.wait([beside])
                beside.exception()

    async def _cancel(self, pick: float) -> None:
        if not self._scheduled:
            return
        newest = self._scheduled[-3:]
        entity, uid, number = found = newest[min(int(pick * len(newest)), len(newest) - 1)]
        self._scheduled.remove(found)
        with self._record("cancel", entity=entity, uid=uid, number=number):
            _check(await self._ask(self._live.cancel_scheduled(entity, [number])))

    # Receiving

    @contextmanager
    def _receiving(self, place: str, session: str | None, most: int, **more: Any) -> Iterator[Answer]:
        # The broker shows all that it has locked, as over HTTP.
        with self._record("receive", place=place, session=session, via=HTTP, most=most, **more) as answer:
            yield answer

    async def receive(self, place: str, session: str | None, actions: Sequence[str], wait: float = _WAIT) -> None:
        """Receive messages, and settle each with the action at its index."""
        address = _address(place)
        lock: SessionLock | None = None
        received: list[Received] = []
        with self._receiving(place, session, len(actions)) as answer:
            if session is not None:
                lock = await self._ask(self._live.accept_session(address, session))
                if lock is None:
                    raise Refused("the session is locked")
            received = await self._ask(self._live.receive(address, len(actions), wait=wait, session=lock))
            answer.result["messages"] = [_record_of(each) for each in received]
        for each, action in zip(received, actions, strict=False):
            await self._settle(address, place, session, each, action, lock)
        if lock is not None:
            # It may be lost.
            with suppress(OncebusError):
                await self._live.release_session(lock)

    async def _settle(
        self, address: Address, place: str, session: str | None, each: Received, action: str, lock: SessionLock | None
    ) -> Answer:
        record, token = _record_of(each), _token(each)
        with self._record("settle", place=place, **_which(record), action=action) as answer:
            if action != RENEW:
                _check(await self._ask(self._live.settle(address, [Settlement(_ACTIONS[action], token)], lock)))
            elif lock is not None:
                await self._ask(self._live.renew_session(lock))
            else:
                [found] = await self._ask(self._live.renew_locks(address, [token]))
                if isinstance(found, Outcome):
                    raise Refused(f"lock-lost: {found.name}")
        if action == DEFER and answer.outcome != FAILED:
            self._deferred.append((place, session, record["number"]))
        return answer

    async def _receive_deferred(self, pick: float) -> None:
        if self._deferred:
            place, session, number = found = self._deferred[int(pick * len(self._deferred))]
            self._deferred.remove(found)
            await self.receive_by_number(place, session, number)

    async def receive_by_number(self, place: str, session: str | None, number: int) -> None:
        """Receive a deferred message and complete it."""
        address, lock = _address(place), None
        received: list[Received] = []
        with self._receiving(place, session, 1, deferred=number) as answer:
            if session is not None:
                lock = await self._ask(self._live.accept_session(address, session))
                if lock is None:
                    raise Refused("the session is locked")
            received = await self._ask(
                self._live.receive_deferred(address, [number], mode=Mode.PEEK_LOCK, session=lock)
            )
            answer.result["messages"] = [_record_of(each) for each in received]
        for each in received:
            await self._settle(address, place, session, each, COMPLETE, lock)
        if lock is not None:
            with suppress(OncebusError):
                await self._live.release_session(lock)

    # Dead letters

    async def _resubmit(self, place: str) -> None:
        letters: list[dict[str, Any]] = []
        with self._record("look", place=place + DEAD_LETTERS):
            found = await self._ask(self._live.peek(Address(place, SubQueue.DEAD_LETTER), 0, 3))
            letters = [_record_of(each) for each in found]
        if letters:
            numbers, uids = [each["number"] for each in letters], [each["uid"] for each in letters]
            with self._record("resubmit", place=place, numbers=numbers, uids=uids) as answer:
                outcomes = await self._ask(self._live.resubmit(place, numbers))
                answer.result["done"] = sum(each is Outcome.DONE for each in outcomes)

    async def _resubmit_copies(self, place: str) -> None:
        if place not in SINKS:
            return
        letters, address = place + DEAD_LETTERS, Address(place, SubQueue.DEAD_LETTER)
        received: list[Received] = []
        with self._receiving(letters, None, 3) as answer:
            received = await self._ask(self._live.receive(address, 3))
            answer.result["messages"] = [_record_of(each) for each in received]
        for each in received:
            self._copied += 1
            record = _record_of(each)
            uid = f"{record['uid']}+{self.name}.{self._copied}"
            copy = Message(uid, f"copy-{record['uid']}", "red", record["session"])
            if await self._send(place, (copy,)) == OK:
                await self._settle(address, letters, None, each, COMPLETE, None)

    # Entities

    async def _until_known(self, kind: str, how: Change, **args: Any) -> None:
        """Retry until it succeeds. Only this client changes the thing, so after a success its state is known."""
        # After a crash, it goes on with this before anything else.
        before = self._unfinished
        self._unfinished = before or (lambda: self._until_known(kind, how, **args))
        while True:
            with self._record(kind, **args) as answer:
                await self._ask(self._live.change(how))
            if answer.is_ok:
                break
            await asyncio.sleep(0.2)
        self._unfinished = before

    async def _recreate(self, entity: str) -> None:
        await self._until_known("delete", delete(entity), entity=entity, incarnation=self._incarnation)
        await self._until_known("create", create(entity), entity=entity, incarnation=self._incarnation)
        self._unfinished = None


def _incoming(entity: str, message: Message, now: int) -> Incoming:
    body, name, own = wire_form(SINKS[entity], message.uid, message.id, message.colour)
    properties = amqp.Properties(message_id=name, group_id=message.session)
    head = amqp.head.encode_head(properties, own)
    due = None if message.due is None else now + round(message.due * 1e6)
    return Incoming(head, amqp.encode_body(body.encode()), name, session=message.session, scheduled=due)


def _record_of(received: Received) -> dict[str, Any]:
    message = received.message
    content: Any = amqp.decode_body(received.body)
    return {
        "uid": uid_of(bytes(content).decode(), message.message_id),
        "id": message.message_id,
        "number": message.sequence,
        "origin": message.enqueued_sequence,
        "count": max(message.deliveries - 1, 0),
        "session": message.session,
        "enqueued": message.enqueued,
    }


def _token(received: Received) -> bytes:
    assert received.message.token is not None
    return received.message.token


def _which(record: dict[str, Any]) -> dict[str, Any]:
    return {"uid": record["uid"], "number": record["number"]}


def _check(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome is not Outcome.DONE:
            raise Refused(f"lock-lost: {outcome.name}")


def _address(place: str) -> Address:
    if place.endswith(DEAD_LETTERS):
        return Address(place.removesuffix(DEAD_LETTERS), SubQueue.DEAD_LETTER)
    return Address(place)
