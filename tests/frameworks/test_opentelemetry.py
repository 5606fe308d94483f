"""The official client with tracing switched on: the broker's spans join its trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.serve.clients import Client, Running
from tests.programs.serve.programs import until
from tests.protocols.monitoring.collector import Collector

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "tracing" / "shop.py"
GUIDE = HERE.parents[1] / "docs" / "guides" / "tracing.md"
PATIENCE = 120.0


def test_the_guide_shows_the_application_that_is_run() -> None:
    assert f"```python\n{EXAMPLE.read_text()}```" in GUIDE.read_text()


@pytest.mark.release
def test_a_message_and_its_duplicate_can_be_followed_from_the_sender_to_the_receiver(
    broker: Running, collector: Collector, connection: str, client: Client
) -> None:
    assert client.put("orders", {"RequiresDuplicateDetection": "true"})[0] == 201
    environment = {
        **os.environ,
        "CONNECTION_STRING": connection,
        "QUEUE": "orders",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "shop",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (0, "Received: two books\n"), done.stderr
    (order,) = [span for span in collector.spans if span.name == "order"]

    def have_come() -> bool:
        return len([span for span in collector.of(order.trace) if span.service == "oncebus"]) == 7

    until(have_come, "the spans of the broker", limit=PATIENCE)
    found = collector.of(order.trace)
    made = [span for span in found if span.service == "shop" and span.name == "ServiceBus.message"]
    assert [span.parent for span in made] == [order.id, order.id]
    steps = [
        sorted(span.name for span in found if span.service == "oncebus" and span.parent == each.id) for each in made
    ]
    first = ["accept orders", "complete orders", "deliver orders", "detect orders", "ingest orders"]
    assert steps == [first, ["accept orders", "detect orders"]]
    (dropped,) = [span for span in found if span.parent == made[1].id and span.name == "detect orders"]
    (original,) = [span for span in found if span.parent == made[0].id and span.name == "detect orders"]
    number = original.attributes["oncebus.sequence_number"]
    assert dropped.attributes["oncebus.verdict"] == "duplicate"
    assert dropped.attributes["oncebus.original.sequence_number"] == number
    assert [(event.name, event.attributes["oncebus.original.sequence_number"]) for event in dropped.events] == [
        ("duplicate dropped", number)
    ]
    # The times are those of one machine.
    assert order.start <= original.start <= original.end
    assert client.metric("spans_total", outcome="exported") >= 7
    assert client.metric("spans_total", outcome="failed") == 0
