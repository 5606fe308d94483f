"""The spans of messages, through a broker and a collector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from oncebus.broker.sending import Incoming
from oncebus.engine.store import Action, Mode, Outcome
from oncebus.model.entities import Rule, SqlFilter
from oncebus.protocols.monitoring import span_export, spans
from oncebus.protocols.monitoring.span_export import SpanExport
from oncebus.protocols.monitoring.spans import Spans
from tests.broker.scenes import DEAD, Scene, message, play
from tests.broker.test_transactions import Client

from .collector import Collector, Span, collector

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def traced(identity: str, trace: str = TRACE, flags: str = "01", **more: Any) -> Incoming:
    return message(identity, user={"traceparent": f"00-{trace}-{PARENT}-{flags}", "tracestate": "a=1"}, **more)


def played(data: Path, plot: Callable[[Scene], Awaitable[None]], most: int = 2048) -> Collector:
    """Run a plot with a broker that is traced, and return what its collector got."""
    with collector() as collected:
        export = SpanExport(OTLPSpanExporter(collected.url + "/v1/traces"), most)

        async def with_tracer(scene: Scene) -> None:
            scene.broker.trace_with(Spans(export, scene.broker.clock))
            await plot(scene)
            await scene.rounds()

        play(data, with_tracer)
        # A busy machine may take longer than a stop may take.
        with patch.object(span_export, "FLUSH_SECONDS", 60.0):
            export.close()
        return collected


def names(found: list[Span]) -> list[str]:
    return [span.name for span in found]


def one(collected: Collector, name: str) -> Span:
    (found,) = [span for span in collected.spans if span.name == name]
    return found


def test_a_duplicate_under_a_detection_key_is_no_error(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True, detection_key="property:order")
        for identity in ("a", "b"):
            sent = message(identity, user={"traceparent": f"00-{TRACE}-{PARENT}-01", "order": 17})
            await scene.send("q", sent)

    collected = played(tmp_path, plot)
    found = [span for span in collected.spans if span.name.startswith("detect")]
    assert [span.is_error for span in found] == [False, False]
    assert [event.name for span in found for event in span.events] == ["duplicate dropped"]


def test_each_step_of_a_message_joins_the_trace_of_its_sender(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", traced("a"))
        (received,) = await scene.receive()
        scene.time.advance(5)
        await scene.settle("q", received, Action.COMPLETE)

    collected = played(tmp_path, plot)
    found = collected.of(TRACE)
    assert sorted(names(found)) == ["accept q", "complete q", "deliver q", "detect q", "ingest q"]
    assert {(span.service, span.parent, span.state) for span in found} == {("oncebus", PARENT, "a=1")}
    assert {span.name: span.kind for span in found if span.kind != "INTERNAL"} == {"accept q": "SERVER"}
    assert all(span.start <= span.end and not span.is_error for span in found)
    common = {
        "messaging.system": "servicebus",
        "messaging.destination.name": "q",
        "messaging.message.id": "a",
        "messaging.servicebus.message.enqueued_time": 1_790_000_000,
        "oncebus.sequence_number": 1,
    }
    assert all(common.items() <= span.attributes.items() for span in found)
    about = {span.attributes["messaging.operation.name"]: span.attributes for span in found}
    assert about["accept"]["messaging.operation.type"] == "send"
    assert about["detect"]["oncebus.verdict"] == "new"
    assert about["detect"]["oncebus.fate"] == "delivered"
    assert about["ingest"]["oncebus.destinations"] == ["q"]
    assert about["deliver"]["messaging.servicebus.message.delivery_count"] == 1
    assert about["complete"]["messaging.operation.type"] == "settle"
    assert about["complete"]["messaging.servicebus.disposition_status"] == "complete"
    assert one(collected, "complete q").start - one(collected, "deliver q").end == 5_000_000_000


def test_a_drop_names_the_original(tmp_path: Path) -> None:
    other = "f" * 32

    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        await scene.send("q", "before", traced("a"))
        await scene.flow()
        scene.time.advance(3)
        await scene.send("q", traced("a", other))
        await scene.flow()

    collected = played(tmp_path, plot)
    assert sorted(names(collected.of(other))) == ["accept q", "detect q"]
    (dropped,) = [span for span in collected.of(other) if span.name == "detect q"]
    original = {"oncebus.original.sequence_number": 2, "oncebus.original.enqueued_time": 1_790_000_000}
    assert dropped.attributes["oncebus.verdict"] == "duplicate"
    assert dropped.attributes["oncebus.fate"] == "duplicate"
    assert dropped.attributes["oncebus.sequence_number"] == 3
    assert original.items() <= dropped.attributes.items()
    assert dropped.events == [("duplicate dropped", original)]
    (new,) = [span for span in collected.of(TRACE) if span.name == "detect q"]
    assert new.attributes["oncebus.verdict"] == "new"
    assert new.events == []


def test_messages_without_a_sampled_context_have_no_spans(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(detects=True)
        bad = message("bad", user={"traceparent": "00-" + "0" * 32 + "-" + PARENT + "-01"})
        await scene.send("q", "plain", traced("unsampled", flags="00"), bad, message("no", user={"n": 1}))
        for received in await scene.receive():
            await scene.settle("q", received, Action.COMPLETE)
        await scene.send("q", traced("sampled"))

    collected = played(tmp_path, plot)
    assert {span.attributes["messaging.message.id"] for span in collected.spans} == {"sampled"}


def test_another_sampler_decides_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")

    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", traced("unsampled", flags="00"))

    assert "accept q" in names(played(tmp_path, plot).of(TRACE))


def test_copies_of_a_topic_show_their_destinations_and_failures(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.topic()
        first = await scene.subscription("first")
        await scene.subscription("none", rules=[Rule("no", SqlFilter("n = 2"))])
        await scene.subscription(
            "fails", rules=[Rule("bad", SqlFilter("n / 0 = 1"))], dead_lettering_on_filter_evaluation_exceptions=True
        )
        parent = f"00-{TRACE}-{PARENT}-01"
        await scene.send("t", message("a", user={"Diagnostic-Id": parent, "n": 1}))
        assert len(await scene.receive(first, mode=Mode.RECEIVE_AND_DELETE)) == 1
        (dead,) = await scene.receive("t/Subscriptions/fails", sub_queue=DEAD)
        await scene.settle("t/Subscriptions/fails", dead, Action.ABANDON)

    collected = played(tmp_path, plot)
    # Nothing is detected where detection is off.
    assert sorted(names(collected.of(TRACE))) == [
        *("abandon t", "accept t", "deliver t", "deliver t", "ingest t", "route t")
    ]
    route, ingest = one(collected, "route t"), one(collected, "ingest t")
    assert "oncebus.verdict" not in route.attributes
    assert route.is_error
    ((name, failure),) = route.events
    assert name == "dead-lettered"
    assert failure["messaging.destination.name"] == "t/Subscriptions/fails"
    assert failure["error.type"]
    assert ingest.attributes["oncebus.destinations"] == ["t/Subscriptions/first", "t/Subscriptions/fails"]
    assert ingest.attributes["oncebus.copies"] == 2
    delivered = [span.attributes for span in collected.spans if span.name == "deliver t"]
    assert [each["messaging.destination.subscription.name"] for each in delivered] == ["first", "fails"]
    assert [each.get("oncebus.sub_queue") for each in delivered] == [None, "dead_letter"]


def test_forwarded_and_scheduled_messages_keep_their_trace(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue("to")
        await scene.queue("from", forward_to="to")
        await scene.send("from", traced("a", scheduled=scene.time.now + 60_000_000))
        await scene.later(61, rounds=3)
        assert len(await scene.receive("to")) == 1

    collected = played(tmp_path, plot)
    found = names(collected.of(TRACE))
    assert found.count("accept from") == 1
    assert found.count("route from") == 2
    assert found.count("route to") == 1
    assert found[-1] == "deliver to"
    assert one(collected, "accept from").attributes["oncebus.scheduled_time"] == 1_790_000_060
    assert one(collected, "route to").attributes["oncebus.requeued_from"] == "from"


def test_transactions_are_traced(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", traced("first"))
        (received,) = await scene.receive()
        client = Client(scene)
        with client.all.work(client.transaction.id) as work:
            work.send("q", [traced("second")])
        await client.settle(received)
        await client.commit()

    collected = played(tmp_path, plot)
    accepted = [span for span in collected.spans if span.name == "accept q"]
    assert [span.attributes["messaging.message.id"] for span in accepted] == ["first", "second"]
    assert one(collected, "complete q").attributes["messaging.message.id"] == "first"


def test_a_settlement_that_fails_is_an_error(tmp_path: Path) -> None:
    async def plot(scene: Scene) -> None:
        await scene.queue(lock_duration=10_000_000)
        await scene.send("q", traced("a"))
        (received,) = await scene.receive()
        scene.time.advance(11)
        assert await scene.settle("q", received, Action.COMPLETE) is Outcome.MESSAGE_LOCK_LOST

    failed = one(played(tmp_path, plot), "complete q")
    assert failed.is_error
    assert failed.attributes["error.type"] == "message-lock-lost"


def test_only_the_newest_deliveries_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_LOCKED", 2)

    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", traced("a"), traced("b"), traced("c"))
        for received in await scene.receive():
            await scene.settle("q", received, Action.COMPLETE)

    settled = [span for span in played(tmp_path, plot).spans if span.name == "complete q"]
    assert [span.attributes["messaging.message.id"] for span in settled] == ["b", "c"]


def counts(export: SpanExport) -> dict[str, float]:
    (family,) = export.metrics()
    return {sample.labels["outcome"]: sample.value for sample in family.samples}


def test_spans_that_cannot_wait_are_dropped_and_counted() -> None:
    with collector() as collected:
        # Nothing is exported before the end.
        export = SpanExport(OTLPSpanExporter(collected.url), 512)
        for _ in range(600):
            export.tracer.start_span("a").end()
        export.close()
        found = counts(export)
    assert found["exported"] == len(collected.spans) >= 512
    assert found["exported"] + found["dropped"] == 600
    assert found["failed"] == 0


def test_spans_that_the_collector_refuses_are_counted() -> None:
    with collector() as collected:
        collected.is_broken = True
        export = SpanExport(OTLPSpanExporter(collected.url), 512)
        export.tracer.start_span("a").end()
        export.close()
        assert counts(export) == {"exported": 0, "failed": 1, "dropped": 0}


def test_an_error_in_tracing_does_not_reach_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(spans, "context_of", fail)

    async def plot(scene: Scene) -> None:
        await scene.queue()
        await scene.send("q", traced("a"))
        assert len(await scene.receive()) == 1
        await asyncio.sleep(0)

    assert played(tmp_path, plot).spans == []
    assert "Spans could not be made" in caplog.text
