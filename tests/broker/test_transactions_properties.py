"""Random histories of transactions against a reference model of what they mean."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncebus.broker.addresses import Address
from oncebus.broker.transactions import RolledBack, Transaction, Transactions, UnknownTransaction, Via
from oncebus.engine.store import Action, Outcome, Settlement
from tests.broker.in_process import FakeTime
from tests.broker.scenes import DAY, DEAD, SECOND, Scene, message, scene
from tests.broker.test_restart import copy_as_a_crash_would_leave_it
from tests.properties import examples

LOCK = 60
WORKERS = 2
ACTIONS = [Action.COMPLETE, Action.ABANDON, Action.DEFER, Action.DEAD_LETTER]

Step = tuple[str, int, int]
KINDS = {
    "send": 2,
    "receive": 3,
    "send_in": 2,
    "settle_in": 4,
    "settle": 1,
    "commit": 3,
    "roll_back": 1,
    "wait": 2,
    "restart": 1,
    "die": 1,
}
"""How often each comes, in proportion."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from([kind for kind, times in KINDS.items() for _ in range(times)]),
        st.integers(0, WORKERS - 1),
        st.integers(0, 3),
    ),
    min_size=12,
    max_size=40,
)


@dataclass
class Held:
    """A message of the model, in the queue `plain`."""

    name: str
    order: int
    place: str = "active"
    # While it is locked. A lock has an identity: a message that is received again has another one.
    lock: int | None = None
    until: int = 0


@dataclass
class Begun:
    """A transaction of the model."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    settled: list[tuple[Held, int, Action]] = field(default_factory=list)
    has_failed: bool = False


class Model:
    """Two queues: `plain`, from which messages are received, and `once`, which delivers each id once."""

    def __init__(self) -> None:
        self.now = 0
        self.plain: list[Held] = []
        self.once: list[str] = []
        self.locks = 0
        self.orders = 0

    def send(self, queue: str, name: str) -> None:
        if queue == "plain":
            self.orders += 1
            self.plain.append(Held(name, self.orders))
        elif name not in self.once:
            self.once.append(name)

    def active(self) -> list[Held]:
        return sorted((held for held in self.plain if held.place == "active"), key=lambda held: held.order)

    def receive(self) -> Held | None:
        free = [held for held in self.active() if held.lock is None]
        if not free:
            return None
        self.locks += 1
        free[0].lock, free[0].until = self.locks, self.now + LOCK
        return free[0]

    def holds(self, held: Held, lock: int) -> bool:
        return held.lock == lock and self.now < held.until

    def settle(self, held: Held, action: Action) -> None:
        held.lock = None
        if action is Action.COMPLETE:
            self.plain.remove(held)
        elif action is not Action.ABANDON:
            held.place = action.value

    def commit(self, begun: Begun) -> bool:
        if begun.has_failed or not all(self.holds(held, lock) for held, lock, _ in begun.settled):
            return False
        for queue, name in begun.sent:
            self.send(queue, name)
        for held, _, action in begun.settled:
            self.settle(held, action)
        return True

    def wait(self, seconds: int) -> None:
        self.now += seconds
        for held in self.plain:
            if held.lock is not None and held.until <= self.now:
                held.lock = None

    def names(self, place: str) -> list[str]:
        return sorted(held.name for held in self.plain if held.place == place)


@dataclass
class Run:
    """A broker and the model, which do the same."""

    model: Model
    stage: Scene
    # The locks that receivers have, by when they got them: message, lock in the model, token.
    locked: list[tuple[Held, int, bytes]]
    names: int = 0

    def __post_init__(self) -> None:
        self.clients: list[Transactions] = [self.stage.broker.transactions() for _ in range(WORKERS)]
        self.begun: list[tuple[Transaction, Begun]] = []
        for number in range(WORKERS):
            self.begin(number)
        self.via = Via()
        self.via.attach(self.stage.broker.catalogue.queue("plain"), receives=True)

    def begin(self, worker: int) -> None:
        entry = (self.clients[worker].declare(1), Begun())
        self.begun[worker : worker + 1] = [entry]

    def name(self, queue: str, choice: int) -> str:
        self.names += 1
        return f"{self.names}" if queue == "plain" else f"id {choice}"

    async def step(self, what: str, worker: int, choice: int) -> None:
        model, stage = self.model, self.stage
        queue = ("plain", "once")[choice % 2]
        if what == "send":
            name = self.name(queue, choice)
            await stage.send(queue, name)
            model.send(queue, name)
        elif what == "receive":
            expected = model.receive()
            received = await stage.receive("plain", 1)
            assert [each.message.message_id for each in received] == ([] if expected is None else [expected.name])
            if expected is not None:
                assert expected.lock is not None
                token = received[0].message.token
                assert token is not None
                self.locked.append((expected, expected.lock, token))
        elif what == "send_in":
            transaction, begun = self.begun[worker]
            name = self.name(queue, choice)
            try:
                with self.clients[worker].work(transaction.id, self.via) as work:
                    work.send(queue, [message(name)])
                assert not begun.has_failed
            except RolledBack:
                assert begun.has_failed
            begun.sent.append((queue, name))
        elif what in ("settle", "settle_in") and self.locked:
            # One of the last two, so that the same lock is often used again.
            held, lock, token = self.locked[-1 - choice // 2 % min(2, len(self.locked))]
            await (self.settle_in if what == "settle_in" else self.settle)(worker, held, lock, token)
        elif what == "commit":
            transaction, begun = self.begun[worker]
            try:
                await self.clients[worker].take(transaction.id).commit()
                assert model.commit(begun)
            except RolledBack:
                assert not model.commit(begun)
            self.begin(worker)
        elif what == "roll_back":
            self.clients[worker].take(self.begun[worker][0].id).roll_back()
            self.begin(worker)
        elif what == "wait":
            await stage.later(35)
            model.wait(35)

    def is_enlisted(self, lock: int) -> bool:
        """Return whether a transaction that has not ended settles the message with this lock."""
        return any(known == lock for _, begun in self.begun if not begun.has_failed for _, known, _ in begun.settled)

    async def settle(self, worker: int, held: Held, lock: int, token: bytes) -> None:
        action = ACTIONS[worker]
        (outcome,) = await self.stage.broker.settle(Address("plain"), [Settlement(action, token)])
        assert (outcome is Outcome.DONE) is (self.model.holds(held, lock) and not self.is_enlisted(lock))
        if outcome is Outcome.DONE:
            self.model.settle(held, action)

    async def settle_in(self, worker: int, held: Held, lock: int, token: bytes) -> None:
        transaction, begun = self.begun[worker]
        action = ACTIONS[(worker + lock) % len(ACTIONS)]
        try:
            with self.clients[worker].work(transaction.id, self.via) as work:
                (outcome,) = await work.settle(Address("plain"), [Settlement(action, token)])
        except RolledBack:
            assert begun.has_failed
            return
        assert (outcome is Outcome.DONE) is (self.model.holds(held, lock) and not self.is_enlisted(lock))
        begun.settled.append((held, lock, action))
        begun.has_failed = begun.has_failed or outcome is not Outcome.DONE

    async def check(self) -> None:
        """Compare everything that receivers can see."""
        await self.stage.rounds(3)
        found: dict[str, list[str]] = {}
        for each in await self.stage.broker.peek(Address("plain"), 0, 1000):
            found.setdefault(each.message.state.name.lower(), []).append(each.message.message_id)
        assert sorted(found.get("active", [])) == self.model.names("active")
        assert sorted(found.get("deferred", [])) == self.model.names("defer")
        assert sorted(await self.stage.peeked("plain", DEAD)) == self.model.names("dead-letter")
        assert await self.stage.peeked("once") == self.model.once
        assert self.stage.core.committer.held >= 0
        # In order, when nothing is locked any more.
        self.model.wait(LOCK)
        await self.stage.later(LOCK)
        assert await self.stage.taken("plain") == [held.name for held in self.model.active()]


@examples(40)
@given(STEPS)
def test_transactions_do_what_the_model_does(steps: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(history(Path(folder), steps))


async def history(folder: Path, steps: Sequence[Step]) -> None:
    time, model = FakeTime(), Model()
    locked: list[tuple[Held, int, bytes]] = []
    remaining, lives, names = list(steps), 0, 0
    while True:
        data = folder / f"{lives}"
        async with scene(data, time) as stage:
            if lives == 0:
                await stage.queue("plain", lock_duration=LOCK * SECOND)
                await stage.queue("once", detects=True, duplicate_detection_history_time_window=7 * DAY)
            run: Any = Run(model, stage, locked, names)
            await stage.rounds(2)
            while remaining:
                what, worker, choice = remaining.pop(0)
                if what in ("restart", "die"):
                    break
                await run.step(what, worker, choice)
            else:
                await run.check()
                return
            names = run.names
            if what == "die":
                await copy_as_a_crash_would_leave_it(stage, data, folder / f"{lives + 1}")
            for client, (transaction, _) in zip(run.clients, run.begun, strict=True):
                client.roll_back_of(None)
                # It is unknown to the next broker, as to this one.
                try:
                    client.work(transaction.id)
                except UnknownTransaction:
                    continue
                raise AssertionError("the transaction is still known")
        lives += 1
        if what == "restart":
            data.rename(folder / f"{lives}")
