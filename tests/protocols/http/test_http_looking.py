"""Health, metrics, the record of drops and the quarantine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker
from oncebus.broker.sending import Incoming
from oncebus.engine.store import Action, Quarantined, Settlement
from oncebus.model.entities import Rule, SqlFilter, Subscription
from oncebus.protocols.http.records import quarantine_page
from oncebus.protocols.monitoring.health import Health
from oncebus.values.durations import SECOND
from tests.broker.scenes import message
from tests.protocols.http.http_front import LISTENER, ROOT, SENDER, Front, in_path, scenario, token


def health_of(monotonic: Callable[[], float] = lambda: 1.0, **facts: Any) -> Health:
    """Return the health of a broker whose pipeline has this state."""
    pipeline = SimpleNamespace(
        **{"trouble": None, "last_ingest": 0.0, "oldest_wait": 0, "is_running": lambda: False} | facts
    )
    broker = cast(Broker, SimpleNamespace(pipeline=pipeline))
    return Health(broker, lag=30 * SECOND, heartbeat=15 * SECOND, monotonic=monotonic)


def test_health_needs_no_token_and_fails_when_the_pipeline_is_silent(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        answer = await front.ask("GET", "/health", token=None)
        assert (answer.status, answer.text) == (200, '{"status":"healthy","message":"Service is healthy."}')
        front.core.ingester.last_ingest_at -= 16
        answer = await front.ask("GET", "/health", token=None)
        assert answer.status == 503
        assert answer.json["status"] == "unhealthy"
        silence = re.fullmatch(r"The pipeline has produced no output for (\d+) seconds\.", answer.json["message"])
        assert silence is not None
        assert int(silence[1]) >= 16
        assert "oncebus_healthy 0.0\n" in (await front.ask("GET", "/metrics")).text

    scenario(tmp_path, play, pipeline=False)


def test_it_is_live_while_it_answers_and_ready_while_messages_flow(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for path in ("/health/live", "/health/ready", "/health"):
            assert (await front.ask("GET", path, token=None)).status == 200
        front.core.ingester.last_ingest_at -= 16
        live = await front.ask("GET", "/health/live", token=None)
        assert (live.status, live.text) == (200, '{"status":"healthy","message":"Service is live."}')
        ready = await front.ask("GET", "/health/ready", token=None)
        assert ready.status == 503
        assert ready.text == (await front.ask("GET", "/health", token=None)).text
        assert (await front.ask("POST", "/health/live", token=None)).status == 405

    scenario(tmp_path, play, pipeline=False)


def test_silence_up_to_the_limit_is_healthy() -> None:
    now = [15.0]
    health = health_of(lambda: now[0])
    assert health.problem() is None
    now[0] = 15.1
    assert health.problem() == "The pipeline has produced no output for 15 seconds."


def test_the_end_of_the_pipeline_shows_at_once() -> None:
    now, running = [1.0], [False]
    pipeline = SimpleNamespace(trouble=None, last_ingest=0.0, oldest_wait=0, is_running=lambda: running[0])
    broker = cast(Broker, SimpleNamespace(pipeline=pipeline))
    health = Health(broker, lag=30 * SECOND, heartbeat=15 * SECOND, monotonic=lambda: now[0])
    # It may run on another machine.
    assert health.problem() is None
    running[0] = True
    assert health.problem() is None
    running[0], now[0] = False, 2.0
    assert health.problem() == "The pipeline has ended. It is starting again."
    # It runs again, but has not worked yet.
    running[0], now[0] = True, 3.0
    assert health.problem() == "The pipeline has ended. It is starting again."
    pipeline.last_ingest = 3.5
    assert health.problem() is None


def test_health_shows_problems_without_details() -> None:
    health = health_of(trouble="/data/outbox is broken")
    assert health.problem() == "A part of the broker is failing; the log says why."


def test_a_message_may_wait_up_to_the_limit() -> None:
    assert health_of(oldest_wait=30 * SECOND).problem() is None
    health = health_of(oldest_wait=31 * SECOND)
    assert health.problem() == "The oldest message has waited for the pipeline for 31 seconds."


def test_the_age_of_the_backlog_is_exact_without_polling(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.broker.send("orders", [message("1")])
        front.time.advance(40)
        await front.broker.send("orders", [message("2")])
        front.time.advance(0.25)
        answer = await front.ask("GET", "/health", token=None)
        assert answer.json["message"] == "The oldest message has waited for the pipeline for 40 seconds."
        assert "oncebus_pipeline_lag_seconds 40.25\n" in (await front.ask("GET", "/metrics")).text

    scenario(tmp_path, play, pipeline=False)


def test_metrics_cover_entities_and_the_pipeline(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("a/b")
        await front.topic("news", "all", requires_duplicate_detection=True)
        await front.send("a/b", b"12345")
        for _ in range(2):
            await front.send("news", MessageId="1")
        await front.send("a/b", b"x", ScheduledEnqueueTimeUtc="2099-01-01T00:00:00Z")
        await front.broker.counts("a/b")
        await front.broker.counts("news")
        front.time.advance(7)
        answer = await front.ask("GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.text.splitlines()
        for line in (
            "# TYPE oncebus_messages_new_total counter",
            'oncebus_messages_new_total{entity="a/b",kind="queue"} 2.0',
            'oncebus_messages_new_total{entity="news",kind="topic"} 1.0',
            'oncebus_messages_incoming_total{entity="news",kind="topic"} 2.0',
            'oncebus_messages_duplicates_total{entity="news",kind="topic"} 1.0',
            'oncebus_messages_discarded_total{entity="news",kind="topic"} 0.0',
            "oncebus_messages_discarded_total 0.0",
            'oncebus_messages_new_total{entity="news/Subscriptions/all",kind="subscription"} 1.0',
            'oncebus_messages{entity="a/b",kind="queue",state="active"} 1.0',
            'oncebus_messages{entity="a/b",kind="queue",state="scheduled"} 1.0',
            'oncebus_entity_pipeline_bytes{entity="a/b",kind="queue"} 0.0',
            'oncebus_entity_receivers{entity="a/b",kind="queue"} 0.0',
            'oncebus_entity_polled{entity="a/b",kind="queue"} 0.0',
            'oncebus_entity_oldest_message_seconds{entity="news/Subscriptions/all",kind="subscription"} 7.0',
            "oncebus_healthy 1.0",
            "oncebus_pipeline_trouble 0.0",
            "oncebus_catalogue_version 4.0",
        ):
            assert line in lines
        families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        assert {"oncebus_pipeline_lag_commits", "oncebus_inbox_last_commit", "oncebus_ingest_position"} < set(families)
        assert {family.type for family in families.values()} == {"counter", "gauge", "histogram"}

    scenario(tmp_path, play)


def test_metrics_have_a_histogram_for_each_step_of_the_path(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("q")
        for _ in range(3):
            await front.send("q", b"x")
        await front.broker.counts("q")
        front.time.advance(2)
        await front.broker.receive(Address("q"), 2)
        text = (await front.ask("GET", "/metrics")).text
        samples = {
            (sample.name, sample.labels.get("le", "")): sample.value
            for family in text_string_to_metric_families(text)
            if family.type == "histogram"
            for sample in family.samples
        }
        for step in ("send", "commit", "batch", "end_to_end"):
            count = samples[f"oncebus_{step}_seconds_count", ""]
            assert count == samples[f"oncebus_{step}_seconds_bucket", "+Inf"] > 0
        assert samples["oncebus_send_seconds_count", ""] == 3
        assert samples["oncebus_end_to_end_seconds_sum", ""] == 4
        assert samples["oncebus_end_to_end_seconds_bucket", "1.0"] == 0
        assert samples["oncebus_end_to_end_seconds_bucket", "2.5"] == 2

    scenario(tmp_path, play)


def test_drops_are_paged_and_found_by_id_and_time(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("a/b", requires_duplicate_detection=True)
        for _ in range(3):
            for identity in ("1", "ö/ +"):
                await front.send("a/b", MessageId=identity)
            front.time.advance(1)

        async def numbers(query: str) -> tuple[list[int], int | None]:
            page = (await front.ask("GET", "/a/b/$Duplicates", query=query)).json
            return [drop["record"] for drop in page["duplicates"]], page["next"]

        assert await numbers("") == ([1, 2, 3, 4], None)
        assert await numbers("limit=3") == ([1, 2, 3], 3)
        assert await numbers("limit=3&after=3") == ([4], None)
        assert await numbers(f"message-id={in_path('ö/ +')}") == ([2, 4], None)
        assert await numbers("message-id=") == ([], None)
        assert await numbers("since=2026-09-21T14:13:22Z") == ([3, 4], None)
        assert await numbers("since=2026-09-21T16:13:22%2B02:00&message-id=1") == ([3], None)

    scenario(tmp_path, play)


def test_the_quarantine_is_shown_without_its_content(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        assert (await front.ask("GET", "/$quarantine")).json == {"quarantined": [], "next": None}
        entity = front.broker.catalogue.queue("orders").id
        row = Quarantined(7, entity, 3, 9, 1_500_000, "id", "s", "p", "BadRow", "why", 12, b"secret", b"secret", None)
        assert quarantine_page(front.broker.catalogue, [row, row._replace(entity=99)], 2) == {
            "quarantined": [
                {
                    "number": 7,
                    "entity": path,
                    "messageId": "id",
                    "sessionId": "s",
                    "partitionKey": "p",
                    "time": "1970-01-01T00:00:01.500000Z",
                    "sequenceNumber": 9,
                    "position": 3,
                    "reason": "BadRow",
                    "description": "why",
                    "size": 12,
                }
                for path in ("orders", None)
            ],
            "next": 7,
        }

    scenario(tmp_path, play)


async def quarantine_some(front: Front, count: int) -> list[int]:
    """Quarantine messages: a subscription's filter needs properties, and these messages have unreadable ones."""
    await front.topic("news")
    rules = [Rule("x", SqlFilter("x = 1"))]
    made = Subscription(topic="news", name="some")
    await front.broker.change(lambda catalogue, now: catalogue.create(made, now, rules))
    broken = Incoming(b"\x00\x53\x73\xd0\x00", b"", "id")
    await front.broker.send("news", [broken] * count)
    await front.broker.counts("news")
    page = (await front.ask("GET", "/$quarantine", query="entity=news")).json
    return [row["number"] for row in page["quarantined"]]


def test_quarantined_messages_are_discarded_by_their_numbers(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        first, second, third = await quarantine_some(front, 3)
        answer = await front.ask("DELETE", "/$quarantine", query=f"number={first},{third},{third},99")
        assert (answer.status, answer.json) == (200, {"discarded": [first, third], "notFound": [99]})
        page = (await front.ask("GET", "/$quarantine")).json
        assert [row["number"] for row in page["quarantined"]] == [second]
        answer = await front.ask("DELETE", "/$quarantine", query=f"number={first}")
        assert (answer.status, f"No such message in quarantine: '{first}'." in answer.text) == (404, True)

    scenario(tmp_path, play)


def test_released_messages_follow_the_current_rules_and_count_as_accepted_once(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        numbers = await quarantine_some(front, 2)
        await front.broker.change(lambda catalogue, now: catalogue.delete_rule("news", "some", "x"))
        await front.broker.change(lambda catalogue, now: catalogue.create_rule("news", "some", Rule(), now))
        answer = await front.ask("POST", "/$quarantine", query=f"number={numbers[0]}")
        assert (answer.status, answer.json) == (200, {"released": numbers[:1], "notFound": []})
        received = await front.broker.receive(Address("news/Subscriptions/some"), 2, wait=5)
        assert [each.message.message_id for each in received] == ["id"]
        counts = await front.broker.counts("news")
        assert (counts.new, counts.duplicates, counts.quarantined) == (2, 0, 2)
        page = (await front.ask("GET", "/$quarantine")).json
        assert [row["number"] for row in page["quarantined"]] == numbers[1:]

    scenario(tmp_path, play)


def test_deciding_about_the_quarantine_needs_manage_on_the_namespace(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        for method in ("DELETE", "POST"):
            for rule, resource in ((LISTENER, ""), (SENDER, ""), (ROOT, "news")):
                given = token(front.time, rule, resource)
                answer = await front.ask(method, "/$quarantine", query="number=1", token=given)
                assert answer.status == 401
            for query, text in (
                ("", "The parameter 'number' is missing."),
                ("number=1,x", "The parameter 'number' has value 'x'. Not a number from 1 to"),
                ("number=0", "The parameter 'number' has value '0'. Not a number from 1 to"),
                ("number=1,,2", "The parameter 'number' has value ','. Not a number from 1 to"),
                (f"number={'1,' * 1000}1", "The parameter 'number' has 1001 numbers; 1000 is the limit."),
            ):
                answer = await front.ask(method, "/$quarantine", query=query)
                assert (answer.status, text in answer.text) == (400, True), answer.text

    scenario(tmp_path, play)


def test_an_id_is_forgotten_and_the_record_says_so(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(requires_duplicate_detection=True)
        await front.broker.send("orders", [message("a/1"), message("b")])
        answer = await front.ask("POST", "/orders/$forgets", query="message-id=a%2F1")
        assert answer.status == 200
        made = answer.json["forget"]
        assert (made["messageId"], made["original"]["sequenceNumber"]) == ("a/1", 1)
        assert (made["sessionId"], made["partitionKey"]) == (None, None)
        answer = await front.ask("POST", "/orders/$forgets", query="message-id=unknown&partition-key=p")
        other = answer.json["forget"]
        assert (other["original"], other["partitionKey"]) == (None, "p")
        await front.broker.send("orders", [message("a/1"), message("b")])
        assert (await front.broker.counts("orders")).duplicates == 1
        page = (await front.ask("GET", "/orders/$forgets", query="limit=1")).json
        assert page == {"entity": "orders", "forgets": [made], "next": made["record"]}
        page = (await front.ask("GET", "/orders/$forgets", query=f"after={made['record']}")).json
        assert page == {"entity": "orders", "forgets": [other], "next": None}
        for query, text in (("", "The id to forget is empty."), (f"message-id={'x' * 129}", "MessageId")):
            answer = await front.ask("POST", "/orders/$forgets", query=query)
            assert (answer.status, text in answer.text) == (400, True)

    scenario(tmp_path, play)


def test_a_forget_that_the_pipeline_has_not_seen_yet_is_durable(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue(requires_duplicate_detection=True)
        answer = await front.ask("POST", "/orders/$forgets", query="message-id=a")
        assert (answer.status, answer.json) == (202, {"entity": "orders", "messageId": "a", "forget": None})
        assert front.broker.pipeline.lag == 1

    scenario(tmp_path, play, pipeline=False, read_your_sends=0.01)


def test_messages_and_dead_letters_are_purged(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.broker.send("orders", [message("a"), message("b"), message("c")])
        await front.broker.counts("orders")
        (held,) = await front.broker.receive(Address("orders"), 1)
        assert held.message.token is not None
        settled = [Settlement(Action.DEAD_LETTER, held.message.token)]
        await front.broker.settle(Address("orders"), settled)
        answer = await front.ask("DELETE", "/orders/$messages", query="before=2001-01-01T00:00:00Z")
        assert (answer.json["deleted"], answer.json["left"]) == (0, 2)
        answer = await front.ask("DELETE", "/orders/$messages")
        assert answer.status == 200
        assert (answer.json["entity"], answer.json["deleted"], answer.json["left"]) == ("orders", 2, 0)
        assert not answer.json["more"]
        answer = await front.ask("DELETE", "/orders/$DeadLetterQueue/$messages")
        assert (answer.json["deleted"], answer.json["left"]) == (1, 0)
        answer = await front.ask("DELETE", "/orders/$messages", query="before=now")
        assert (answer.status, "The parameter 'before' has value 'now'." in answer.text) == (400, True)

    scenario(tmp_path, play)
