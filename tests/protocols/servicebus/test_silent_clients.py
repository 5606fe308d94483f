"""Clients that send nothing for long: the synchronous client while it is idle, and any client whose network is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from oncebus.protocols.servicebus import AmqpLimits
from tests.broker.in_process import FakeTime

from .bus import PATIENCE, Transport, running_bus

# A busy machine may stall a client that is not idle for a second or two.
IDLE_SECONDS = 1.5
# The client leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.mark.parametrize("transport", list(Transport), ids=str)
def test_an_idle_client_loses_its_connections_and_reconnects_by_itself(tmp_path: Path, transport: Transport) -> None:
    with running_bus(tmp_path, limits=AmqpLimits(idle_seconds=IDLE_SECONDS), transport=transport) as bus:
        queue = bus.queue()
        client = bus.client(retry_total=3, retry_backoff_factor=0.01)
        sender = client.get_queue_sender(queue, keep_alive=0)
        receiver = client.get_queue_receiver(queue, keep_alive=0)
        with sender, receiver:
            for text in ("before", "after"):
                sender.send_messages(ServiceBusMessage(text))
                (found,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
                assert str(found) == text
                receiver.complete_message(found)
                bus.until(
                    lambda: bus.server.counts.senders + bus.server.counts.receivers == 0,
                    "the links of the silent client end",
                )


def test_a_receiver_that_vanished_takes_no_message_twice(tmp_path: Path) -> None:
    with running_bus(tmp_path, FakeTime(), limits=AmqpLimits(idle_seconds=IDLE_SECONDS)) as bus:
        queue = bus.queue(max_delivery_count=2)
        bus.put(queue, *(ServiceBusMessage(str(number)) for number in range(3)))
        # After this call it does nothing more: to the broker it looks like a client without a network.
        vanished = bus.receiver(queue, prefetch_count=200)
        assert len(vanished.receive_messages(1, max_wait_time=PATIENCE)) == 1
        bus.until(lambda: bus.server.counts.receivers == 0, "the link of the vanished receiver ends")
        bus.advance(120)
        found = bus.receiver(queue).receive_messages(3, max_wait_time=PATIENCE)
        assert [(str(each), each.delivery_count) for each in found] == [("0", 1), ("1", 1), ("2", 1)]
