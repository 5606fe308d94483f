"""Transactions of Qpid Proton, an independent client, over the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from .bus import PATIENCE, ROOT, Bus

Step = Callable[["Worker"], None]


class Worker(MessagingHandler, TransactionHandler):
    """Receives a number of messages and can send to queues; then does its steps, each when the last is answered."""

    def __init__(
        self, bus: Bus, steps: list[Step], *, receives: dict[str, int] | None = None, sends: Sequence[str] = ()
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.bus = bus
        self.steps = steps
        self.said: list[str] = []
        self.received: dict[str, list[Any]] = {}
        self.senders: dict[str, Any] = {}
        self.transaction: Any = None
        self._receives = dict(receives or {})
        self._sends = sends
        self._has_begun = False
        self._problem: str | None = None

    def run(self) -> list[str]:
        """Return what the client was told."""
        Container(self).run()
        assert self._problem is None, self._problem
        return self.said

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self._deadline = event.container.schedule(PATIENCE, self)
        self.connection = event.container.connect(
            f"amqp://localhost:{self.bus.port}",
            user=ROOT.name,
            password=ROOT.primary_key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            reconnect=False,
        )
        # First in its session: it may send to several entities.
        self.declare()

    def on_timer_task(self, event: Any) -> None:  # noqa: ARG002
        self._problem = f"nothing happened for {PATIENCE} s after {self.said}"
        self.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self._problem = str(event.transport.condition)

    def on_link_error(self, event: Any) -> None:
        self.said.append(event.link.remote_condition.name)
        self.next()

    # Steps

    def declare(self) -> None:
        self.container.declare_transaction(self.connection, handler=self)

    def send(self, queue: str, *bodies: str, **more: Any) -> None:
        for body in bodies:
            self.transaction.send(self.senders[queue], proton.Message(body=body, **more))

    def next(self) -> None:
        if self.steps:
            self.steps.pop(0)(self)
        else:
            self._deadline.cancel()
            self.connection.close()

    # Events

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        if self._has_begun:
            self.next()
            return
        for queue, count in self._receives.items():
            self.container.create_receiver(self.connection, queue).flow(count)
        for queue in self._sends:
            self.container.create_sender(self.connection, queue)
        self._begin()

    def _begin(self) -> None:
        """Take the first step once all messages have come and all senders have credit."""
        if not self._has_begun and not any(self._receives.values()) and self.senders.keys() == {*self._sends}:
            self._has_begun = True
            self.next()

    def on_sendable(self, event: Any) -> None:
        # Without credit a message would wait in the client, and the discharge overtake it.
        if event.sender.target.address in self._sends:
            self.senders[event.sender.target.address] = event.sender
            self._begin()

    def on_message(self, event: Any) -> None:
        queue = event.receiver.source.address
        self.received.setdefault(queue, []).append(event.delivery)
        self._receives[queue] -= 1
        self._begin()

    def on_settled(self, event: Any) -> None:
        state: Any = event.delivery.remote_state
        if event.delivery.link.is_sender and not hasattr(event.delivery, "transaction"):
            self.said.append(f"sent {int(state):#x}")

    def on_transaction_committed(self, event: Any) -> None:  # noqa: ARG002
        self.said.append("committed")
        self.next()

    def on_transaction_aborted(self, event: Any) -> None:  # noqa: ARG002
        self.said.append("aborted")
        self.next()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.said.append(event.delivery.remote.condition.name)
        self.next()


def put(bus: Bus, queue: str, *bodies: bytes) -> None:
    bus.put(queue, *(ServiceBusMessage(body) for body in bodies))


def active(bus: Bus, queue: str) -> int:
    return bus.run(bus.broker.counts(queue)).active


def test_a_commit_moves_a_message_from_queue_to_queue(bus: Bus) -> None:
    source, target = bus.queue(), bus.queue()
    put(bus, source, b"1")

    def move(worker: Worker) -> None:
        (delivery,) = worker.received[source]
        worker.send(target, "moved", id="m")
        worker.transaction.accept(delivery)
        worker.transaction.commit()

    said = Worker(bus, [move], receives={source: 1}, sends=[target]).run()
    assert sorted(said) == ["committed", "sent 0x34"]
    assert active(bus, source) == 0
    ((message, _),) = bus.take(target, 1)
    assert message.message_id == "m"


def test_an_abort_leaves_everything_as_it_was(bus: Bus) -> None:
    source, target = bus.queue(), bus.queue()
    put(bus, source, b"1")

    def abort(worker: Worker) -> None:
        (delivery,) = worker.received[source]
        worker.send(target, "moved")
        worker.transaction.accept(delivery)
        worker.transaction.abort()

    said = Worker(bus, [abort], receives={source: 1}, sends=[target]).run()
    assert "aborted" in said
    # The client releases what it had received.
    ((_, _),) = bus.take(source, 1)
    assert active(bus, target) == 0


def test_many_transactions_follow_each_other_on_one_connection(bus: Bus) -> None:
    queue = bus.queue(requires_duplicate_detection=True)

    def begin(worker: Worker) -> None:
        worker.steps.insert(0, commit)
        worker.declare()

    def commit(worker: Worker) -> None:
        number = worker.said.count("committed")
        worker.send(queue, "x", id=f"{number}")
        worker.send(queue, "x", id=f"{number + 1}")
        worker.transaction.commit()
        if number < 19:
            worker.steps.insert(0, begin)

    said = Worker(bus, [commit], sends=[queue]).run()
    assert said.count("committed") == 20
    assert [message.message_id for message, _ in bus.take(queue, 21)] == [f"{number}" for number in range(21)]
    assert len(bus.run(bus.broker.duplicates(queue))) == 19


def test_a_failed_send_fails_the_commit(bus: Bus) -> None:
    queue = bus.queue()

    def commit(worker: Worker) -> None:
        worker.send(queue, "good")
        worker.send(queue, "bad", id="x" * 200)
        worker.transaction.commit()

    assert Worker(bus, [commit], sends=[queue]).run()[-1] == "amqp:transaction:rollback"
    assert active(bus, queue) == 0


def test_only_the_first_entity_can_be_received_from(bus: Bus) -> None:
    first, second = bus.queue(), bus.queue()

    def receive(worker: Worker) -> None:
        worker.container.create_receiver(worker.connection, first)
        worker.container.create_receiver(worker.connection, second)

    assert Worker(bus, [receive]).run() == ["amqp:not-allowed"]


@pytest.mark.parametrize("settles_first", [False, True])
def test_a_connection_that_is_lost_rolls_back(bus: Bus, settles_first: bool) -> None:
    queue = bus.queue()
    put(bus, queue, b"1")

    def leave(worker: Worker) -> None:
        (delivery,) = worker.received[queue]
        worker.transaction.settle_before_discharge = settles_first
        worker.send(queue, "more")
        worker.transaction.accept(delivery)
        worker.next()

    Worker(bus, [leave], receives={queue: 1}, sends=[queue]).run()
    bus.until(lambda: not bus.broker._core.committer.working, "the transaction is rolled back")
    assert active(bus, queue) == 1
