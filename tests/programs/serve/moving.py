"""Workers that move messages between two queues in transactions, over AMQP, while the gateway is killed.

Each transaction completes a message of one queue and sends it, with one more hop, to the other. It also sends its own
name to a log. So however many transactions were cut short: each message is in one queue once, and all hops together are
as many as there are names in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from oncebus import amqp
from oncebus.amqp.head import Properties
from oncebus.amqp.message import AmqpValue
from oncebus.amqp.outcomes import Accepted, Declared, Rejected, TransactionalState
from oncebus.amqp.performatives import Attach, Coordinator, Disposition, Flow, Source, Target, Transfer
from oncebus.amqp.types import Described, ULong
from tests.abuse.attackers import amqp_connection
from tests.amqp.client import Sent, credit, receiver, sender, transfer, written
from tests.amqp.sockets import Socket

T = TypeVar("T")

POINTS = ("declared", "received", "sent", "settled", "discharging", "answered")
"""Where a transaction can be interrupted: after an answer, or right after a request was written."""
LOG = "log"
CONTROL, INTO, LOGS, FROM = range(4)
Hook = Callable[[str], Awaitable[None]]


class House(Protocol):
    """A broker whose gateway can be killed."""

    @property
    def port(self) -> int:
        """The current port for AMQP."""

    @property
    def rule(self) -> tuple[str, str]:
        """The name and the key of a rule to sign in with."""


class Mover:
    """Moves messages from queue to queue. `outcomes` has what it was told of each transaction, None for nothing."""

    def __init__(self, house: House, name: str, queues: tuple[str, str]) -> None:
        self._house = house
        self._name = name
        self._queues = itertools.cycle([queues, queues[::-1]])
        self._numbers = itertools.count(1)
        self.outcomes: dict[str, bool | None] = {}

    async def move(self, count: int, hook: Hook) -> None:
        """Move messages on one connection, until it breaks. `hook` is called at each point of each transaction."""
        source, target = next(self._queues)
        try:
            async with amqp_connection(self._house.port, self._house.rule) as connection:
                peer = _Peer(connection)
                await peer.attach(sender("c", CONTROL, target=Coordinator()))
                # First in its session is the coordinator, and this is the entity to go via.
                await peer.attach(receiver("r", FROM, source=Source(source)))
                await peer.attach(sender("i", INTO, target=Target(target)))
                await peer.attach(sender("l", LOGS, target=Target(LOG)))
                for _ in range(count):
                    await self._move_one(peer, hook)
        except (OSError, EOFError, TimeoutError):
            # The gateway was killed, or there was nothing to move.
            return

    async def _move_one(self, peer: _Peer, hook: Hook) -> None:
        number = next(self._numbers)
        name, fails = f"{self._name}-{number}", number % 5 == 0
        declared = await peer.send(CONTROL, _control(0x31, None))
        assert isinstance(declared, Declared), declared
        await hook("declared")
        await peer.connection.say(written(credit(1, FROM, delivery_count=peer.received)))
        delivery, payload = await peer.next(Transfer)
        peer.received += 1
        await hook("received")
        identity, _, hops = _text(payload).partition(":")
        state = TransactionalState(declared.txn_id)
        await peer.write(INTO, _message(f"{identity}:{int(hops) + 1}", identity), state)
        await peer.write(LOGS, _message(name, name), state)
        await hook("sent")
        accepted = TransactionalState(declared.txn_id, Accepted())
        await peer.connection.say(written(Disposition(role=True, first=delivery.delivery_id or 0, state=accepted)))
        await hook("settled")
        last = await peer.write(CONTROL, _control(0x32, declared.txn_id, fails))
        self.outcomes[name] = None
        await hook("discharging")
        answer = await peer.outcome(last)
        assert isinstance(answer, Accepted | Rejected), answer
        self.outcomes[name] = isinstance(answer, Accepted) and not fails
        await hook("answered")


class _Peer:
    """One connection, which knows what it has sent and received."""

    def __init__(self, connection: Socket) -> None:
        self.connection = connection
        self.received = 0
        self._ids = itertools.count()
        self._frames: list[Sent] = []

    async def attach(self, attach: Attach) -> None:
        await self.connection.say(written(attach))
        await self.next(Attach)
        if not attach.role:
            await self.next(Flow)

    async def next(self, kind: type[T]) -> tuple[T, bytes]:
        """Return the next frame of a kind. Those of other kinds stay for later."""
        while True:
            for at, sent in enumerate(self._frames):
                if isinstance(sent.performative, kind):
                    del self._frames[at]
                    return sent.performative, sent.payload
            self._frames.append(await self.connection.frame())

    async def write(self, handle: int, payload: bytes, state: Any = None) -> int:
        number = next(self._ids)
        await self.connection.say(written(transfer(number, handle, delivery_tag=b"%d" % number, state=state), payload))
        return number

    async def send(self, handle: int, payload: bytes) -> Any:
        return await self.outcome(await self.write(handle, payload))

    async def outcome(self, number: int) -> Any:
        """Return the outcome of a delivery to the broker. What is said of others before it is not needed."""
        while True:
            disposition, _ = await self.next(Disposition)
            if disposition.role and disposition.first <= number <= (disposition.last or 0):
                return disposition.state


def _control(code: int, *fields: object) -> bytes:
    return b"".join(amqp.encode_message(None, None, AmqpValue(Described(ULong(code), list(fields)))))


def _message(text: str, identity: str) -> bytes:
    return b"".join(amqp.encode_message(Properties(message_id=identity), None, text.encode()))


def _text(payload: bytes) -> str:
    body = amqp.decode_body(amqp.split(payload).body)
    assert isinstance(body, bytes)
    return body.decode()
