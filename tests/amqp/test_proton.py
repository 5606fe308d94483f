"""Interoperability with Qpid Proton as a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container
from proton.utils import BlockingConnection, LinkDetached, SendException

from oncebus.amqp.outcomes import Accepted, Modified, Rejected, Released
from tests.amqp.echo import Echo, in_thread

TIMEOUT = 20


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def address(echo: Echo) -> Iterator[str]:
    with in_thread(echo) as found:
        yield found


def connect(address: str, **options: Any) -> Any:
    return BlockingConnection(address, timeout=TIMEOUT, **options)


def bodies(receiver: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = receiver.receive(timeout=TIMEOUT)
        # Copy it: the memory of the view is freed with the message.
        found.append(bytes(message.body) if isinstance(message.body, memoryview) else message.body)
        receiver.accept()
    return found


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN", None])
def test_a_message_makes_a_round_trip(address: str, mechanism: str | None) -> None:
    options: dict[str, Any] = {"allowed_mechs": mechanism} if mechanism else {"sasl_enabled": False}
    if mechanism == "PLAIN":
        options.update(user="user", password="key", allow_insecure_mechs=True)
    connection = connect(address, **options)
    sender, receiver = connection.create_sender("queue"), connection.create_receiver("queue")
    delivery = sender.send(proton.Message(body="hello", id="m1", properties={"a": 1}))
    assert delivery.remote_state == proton.Delivery.ACCEPTED
    assert delivery.settled
    message: Any = receiver.receive(timeout=TIMEOUT)
    assert (message.body, message.id, message.properties) == ("hello", "m1", {"a": 1})
    receiver.accept()
    connection.close()


def test_a_wrong_key_is_refused(address: str) -> None:
    with pytest.raises(proton.ConnectionException):
        connect(address, allowed_mechs="PLAIN", user="user", password="wrong", allow_insecure_mechs=True)


def test_many_messages_keep_their_order(address: str) -> None:
    connection = connect(address)
    sender, receiver = connection.create_sender("queue"), connection.create_receiver("queue", credit=20)
    for number in range(300):
        sender.send(proton.Message(body=number))
    assert bodies(receiver, 300) == list(range(300))
    connection.close()


@pytest.mark.parametrize("frame_size", [512, 4096, 1_000_000])
def test_a_large_message_goes_through_frames_of_any_size(address: str, frame_size: int) -> None:
    connection = connect(address, max_frame_size=frame_size)
    payload = bytes(range(256)) * 4096
    sender, receiver = connection.create_sender("queue"), connection.create_receiver("queue")
    for _ in range(3):
        sender.send(proton.Message(body=payload, inferred=True))
    for found in bodies(receiver, 3):
        assert found == payload
    connection.close()


def test_many_links_of_one_session_are_kept_apart(address: str, echo: Echo) -> None:
    connection = connect(address)
    senders = [connection.create_sender(f"q{number}", name=f"s{number}") for number in range(60)]
    receivers = [connection.create_receiver(f"q{number}", name=f"r{number}") for number in range(60)]
    for number, sender in enumerate(senders):
        sender.send(proton.Message(body=number))
    for number, receiver in enumerate(receivers):
        assert bodies(receiver, 1) == [number]
    for link in [*senders[:30], *receivers[:30]]:
        link.close()
    again = connection.create_sender("q5", name="again")
    again.send(proton.Message(body="again"))
    assert bodies(connection.create_receiver("q5", name="again-r"), 1) == ["again"]
    connection.close()


def test_a_refused_link_has_a_reason(address: str) -> None:
    connection = connect(address)
    for create in (connection.create_sender, connection.create_receiver):
        with pytest.raises(LinkDetached, match="The queue 'no-queue' does not exist"):
            create("no-queue")
    connection.create_sender("queue").send(proton.Message(body=1))
    connection.close()


def test_outcomes_arrive_unchanged(address: str, echo: Echo) -> None:
    connection = connect(address)
    sender, receiver = connection.create_sender("queue"), connection.create_receiver("queue", credit=1)
    settles: list[Callable[[], None]] = [receiver.accept, receiver.reject, receiver.release]
    for number, settle in enumerate(settles):
        sender.send(proton.Message(body=number))
        receiver.receive(timeout=TIMEOUT)
        settle()
    # Proton's release marks the message as delivered, so the outcome is modified.
    receiver.close()
    connection.close()
    assert [type(outcome) for outcome in echo.outcomes] == [Accepted, Rejected, Modified]


def test_a_message_that_is_too_large_detaches_its_link(address: str) -> None:
    connection = connect(address)
    sender = connection.create_sender("queue")
    with pytest.raises((LinkDetached, SendException), match="exceeds the limit"):
        sender.send(proton.Message(body=bytes(9 * 1024 * 1024), inferred=True))
    connection.create_sender("queue", name="other").send(proton.Message(body=1))
    connection.close()


class Script(MessagingHandler):
    """An event-driven client. Subclasses handle the events."""

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(**{"prefetch": 0, "auto_accept": False, **options})
        self.address = address
        self.received: list[Any] = []
        self.problem: str | None = None

    def on_start(self, event: Any) -> None:
        self.deadline = event.container.schedule(TIMEOUT, self)
        self.connection = event.container.connect(self.address, reconnect=False, heartbeat=5)
        self.begin(event.container)

    def begin(self, container: Any) -> None:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:  # noqa: ARG002
        self.problem = "timed out"
        self.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.problem = str(event.transport.condition)

    def end(self) -> None:
        self.deadline.cancel()
        self.connection.close()

    def run(self) -> None:
        Container(self).run()
        assert self.problem is None


class Drain(Script):
    """Grants more credit than there are messages, then drains; three times."""

    def begin(self, container: Any) -> None:
        self.rounds = 0
        self.receiver = container.create_receiver(self.connection, "queue", options=AtLeastOnce())
        self.sender = container.create_sender(self.connection, "queue")
        self.left = 0

    def on_sendable(self, event: Any) -> None:  # noqa: ARG002
        if self.rounds == 0:
            self.next_round()

    def next_round(self) -> None:
        self.rounds += 1
        for number in range(5):
            self.sender.send(proton.Message(body=10 * self.rounds + number))
        self.left = 5

    def on_accepted(self, event: Any) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            self.receiver.drain(20)

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)
        self.accept(event.delivery)

    def on_link_flow(self, event: Any) -> None:
        if event.receiver and event.receiver.drained() > 0 and not event.receiver.draining():
            assert event.receiver.credit == 0
            if self.rounds == 3:
                self.end()
            else:
                self.next_round()


def test_a_drain_delivers_the_available_messages_and_uses_up_the_credit(address: str) -> None:
    script = Drain(address)
    script.run()
    assert script.received == [10 * number + step for number in (1, 2, 3) for step in range(5)]


class Flood(Script):
    """Sends as credit allows and receives with a small session window, without waiting."""

    def __init__(self, address: str, count: int, payload: bytes, *, at_most_once: bool) -> None:
        super().__init__(address, prefetch=30, auto_accept=True)
        self.count, self.payload, self.sent = count, payload, 0
        self.options = AtMostOnce() if at_most_once else AtLeastOnce()

    def begin(self, container: Any) -> None:
        session = self.connection.session()
        session.incoming_capacity = 200_000
        session.open()
        self.receiver = container.create_receiver(session, "queue", options=self.options)
        self.sender = container.create_sender(session, "queue", options=self.options)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(proton.Message(body=self.sent, properties={"p": self.payload}))
            self.sent += 1

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)
        if len(self.received) == self.count:
            self.end()


@pytest.mark.parametrize("at_most_once", [False, True])
@pytest.mark.parametrize(("count", "size"), [(2000, 10), (150, 100_000)])
def test_a_flood_goes_through_windows_and_credit(address: str, at_most_once: bool, count: int, size: int) -> None:
    script = Flood(address, count, bytes(size), at_most_once=at_most_once)
    script.run()
    assert script.received == list(range(count))


class ManySessions(Script):
    """Sends a message through one link in each of many sessions."""

    def begin(self, container: Any) -> None:
        self.sessions = [self.connection.session() for _ in range(40)]
        for number, session in enumerate(self.sessions):
            session.open()
            container.create_receiver(session, f"q{number}")
            container.create_sender(session, f"q{number}")

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            event.receiver.flow(1)

    def on_sendable(self, event: Any) -> None:
        if event.sender.target.address not in self.received:
            event.sender.send(proton.Message(body=event.sender.target.address))
            event.sender.drained()

    def on_message(self, event: Any) -> None:
        assert event.receiver.source.address == event.message.body
        self.received.append(event.message.body)
        self.accept(event.delivery)
        if len(set(self.received)) == 40:
            self.end()


def test_many_sessions_are_kept_apart(address: str) -> None:
    script = ManySessions(address)
    script.run()
    assert len(set(script.received)) == 40


def test_both_sides_read_the_open(address: str, echo: Echo) -> None:
    connection = connect(address, properties={proton.symbol("product"): "test"})
    assert connection.conn.remote_container == "echo"
    (protocol,) = echo.protocols
    assert protocol.connection.remote_open is not None
    assert protocol.connection.remote_open.hostname == "127.0.0.1"
    connection.close()


def test_released_messages_come_again(address: str, echo: Echo) -> None:
    connection = connect(address)
    connection.create_sender("queue").send(proton.Message(body="again"))
    receiver = connection.create_receiver("queue", credit=1)
    receiver.receive(timeout=TIMEOUT)
    receiver.release(delivered=False)
    assert bodies(receiver, 1) == ["again"]
    connection.close()
    assert [type(outcome) for outcome in echo.outcomes] == [Released, Accepted]
