"""Receivers attach, detach, drain and change credit at random: no message is lost or completed twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from oncebus import amqp
from oncebus.amqp.outcomes import Accepted, DeliveryState, Modified, Released
from oncebus.amqp.performatives import Detach, Disposition, Flow, Transfer
from oncebus.broker.addresses import parse_address
from oncebus.engine.store import Mode
from oncebus.protocols.servicebus.messages import incoming_message
from tests.amqp.client import credit, frames

from .raw import RawClient, Stage, message, of, play

MESSAGES = 200
OUTCOMES: list[DeliveryState] = [Accepted(), Accepted(), Accepted(), Released(), Modified(True)]


class Receiver:
    """A receiver and the answers it has got."""

    def __init__(self, client: RawClient, random: random.Random) -> None:
        self.client = client
        self.random = random
        self.count = 0
        self.is_attached = False
        self.outcomes: dict[int, tuple[bytes, object]] = {}
        # Completed without an answer: the broker may or may not have done it.
        self.unsure: set[bytes] = set()

    def forget(self) -> None:
        """Forget the state of a connection that has ended."""
        self.unsure |= {body for body, state in self.outcomes.values() if state == Accepted()}
        self.outcomes.clear()

    def step(self, completed: list[bytes]) -> None:
        """Read the frames that came, then do something at random."""
        for sent in frames(b"".join(self.client.connection.output())):
            match sent.performative:
                case Transfer(delivery_id=int() as number):
                    self.count += 1
                    body = amqp.decode_body(amqp.split(sent.payload).body)
                    assert isinstance(body, bytes)
                    outcome = self.random.choice(OUTCOMES)
                    self.outcomes[number] = body, outcome
                    self.client.do(Disposition(role=True, first=number, state=outcome))
                case Disposition(first=first, last=last, state=state):
                    for number in range(first, (last or first) + 1):
                        body, decided = self.outcomes.pop(number)
                        assert state == decided
                        if decided == Accepted():
                            completed.append(body)
                case Flow(delivery_count=int() as count):
                    self.count = count
        if not self.is_attached:
            self.is_attached = True
            self.client.do(of("orders"))
        match self.random.randrange(20):
            case 0:
                self.client.do(Detach(handle=0, closed=True))
                # Its settlements are still answered, before its detach is.
                self.is_attached, self.count = False, 0
            case 1:
                self.client.do(credit(self.random.randrange(5), delivery_count=self.count, drain=True))
            case 2 | 3 | 4 | 5 | 6 | 7:
                self.client.do(credit(self.random.randrange(8), delivery_count=self.count))


@pytest.mark.parametrize("seed", range(2))
def test_no_message_is_lost_and_none_is_delivered_again_after_its_completion_was_answered(
    tmp_path: Path, seed: int
) -> None:
    async def scenario(stage: Stage) -> None:
        chance = random.Random(seed)
        receivers = [Receiver(stage.client(), chance) for _ in range(6)]
        completed: list[bytes] = []
        for start in range(0, MESSAGES, 5):
            bodies = [str(number).encode() for number in range(start, start + 5)]
            await stage.broker.send("orders", [incoming_message(message(body)) for body in bodies])
            for _ in range(10):
                for receiver in receivers:
                    receiver.step(completed)
                await asyncio.sleep(0)
        for receiver in receivers:
            receiver.client.lose()
            receiver.forget()
        assert len(completed) == len(set(completed))
        assert len(completed) > MESSAGES // 10
        # All locks expire.
        stage.time.advance(61)
        left: list[bytes] = []
        for place in ("orders", "orders/$DeadLetterQueue"):
            await stage.broker.counts("orders")
            while received := await stage.broker.receive(parse_address(place), 500, mode=Mode.RECEIVE_AND_DELETE):
                left += [body for each in received if isinstance(body := amqp.decode_body(each.body), bytes)]
        assert len(left) == len(set(left))
        assert not set(left) & set(completed)
        missing = {str(number).encode() for number in range(MESSAGES)} - set(left) - set(completed)
        assert missing <= set().union(*(receiver.unsure for receiver in receivers))

    play(tmp_path, scenario)
