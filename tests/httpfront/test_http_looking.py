"""Health, metrics, the record of drops and the quarantine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from httpfront.http_front import Front, in_path, scenario
from oncebus.broker.core import Core
from oncebus.http.health import Health
from oncebus.http.limits import Limits
from oncebus.http.records import quarantine_page
from oncebus.store import Quarantined


def a_core(**facts: Any) -> Core:
    facts = {"trouble": None, "last_taken_at": 0.0, "position": 0, "last_commit": 0} | facts
    core = SimpleNamespace(
        trouble=facts["trouble"],
        last_taken_at=facts["last_taken_at"],
        progress=SimpleNamespace(position=facts["position"]),
        acceptor=SimpleNamespace(last_commit=facts["last_commit"]),
    )
    return cast(Core, core)


def test_health_is_told_without_a_token_and_fails_when_the_pipeline_is_silent(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        answer = await front.ask("GET", "/health", token=None)
        assert (answer.status, answer.text) == (200, '{"status":"healthy","message":"Service is healthy."}')
        front.core.last_taken_at -= 16
        answer = await front.ask("GET", "/health", token=None)
        assert answer.status == 503
        assert answer.json == {"status": "unhealthy", "message": "The pipeline has been silent for 16 seconds."}
        assert "oncebus_healthy 0\n" in (await front.ask("GET", "/metrics")).text

    scenario(tmp_path, play, pipeline=False)


def test_silence_up_to_the_limit_is_healthy() -> None:
    now = [15.0]
    health = Health(a_core(), Limits(), lambda: now[0])
    assert health.ailment() is None
    now[0] = 15.1
    assert health.ailment() == "The pipeline has been silent for 15 seconds."


def test_trouble_is_told_without_its_details() -> None:
    health = Health(a_core(trouble="/data/outbox is broken"), Limits(), lambda: 1.0)
    assert health.ailment() == "What the pipeline has judged cannot be taken."


def test_a_pipeline_that_works_but_falls_behind_fails_by_the_age_of_the_oldest() -> None:
    now = [0.0]
    core = a_core(last_commit=1)
    health = Health(core, Limits(), lambda: now[0])
    for second in range(0, 100, 10):
        now[0] = float(second)
        core.last_taken_at = now[0]
        cast(Any, core.acceptor).last_commit += 100
        # So much was there 20 seconds ago, and then 40.
        core.progress.position += 10 if second < 60 else 0
        expected = health.oldest_waiting()
        assert (health.ailment() is None) == (expected <= 30), second
    assert health.ailment() == "The oldest message has waited for the pipeline for 90 seconds."
    core.progress.position = core.acceptor.last_commit
    assert health.ailment() is None
    assert health.oldest_waiting() == 0.0


def test_metrics_count_by_entity_and_tell_of_the_pipeline(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("a/b")
        await front.topic("news", "all", requires_duplicate_detection=True)
        await front.send("a/b", b"12345")
        for _ in range(2):
            await front.send("news", MessageId="1")
        await front.send("a/b", b"x", ScheduledEnqueueTimeUtc="2099-01-01T00:00:00Z")
        await front.broker.counts("a/b")
        await front.broker.counts("news")
        answer = await front.ask("GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.text.splitlines()
        for line in (
            "# TYPE oncebus_messages_accepted_total counter",
            'oncebus_messages_accepted_total{entity="a/b",kind="queue"} 2',
            'oncebus_messages_accepted_total{entity="news",kind="topic"} 1',
            'oncebus_messages_duplicates_total{entity="news",kind="topic"} 1',
            'oncebus_messages_delivered_total{entity="news/Subscriptions/all",kind="subscription"} 1',
            'oncebus_messages{entity="a/b",kind="queue",state="active"} 1',
            'oncebus_messages{entity="a/b",kind="queue",state="scheduled"} 1',
            'oncebus_entity_pipeline_bytes{entity="a/b",kind="queue"} 0',
            "oncebus_healthy 1",
            "oncebus_pipeline_trouble 0",
            "oncebus_catalogue_version 4",
        ):
            assert line in lines
        names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
        assert {"oncebus_pipeline_lag_commits", "oncebus_inbox_last_commit", "oncebus_ingest_position"} < set(names)
        assert {f"# TYPE {name}" for name in names} == {line.rpartition(" ")[0] for line in lines if "# TYPE" in line}

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
            return [drop["number"] for drop in page["duplicates"]], page["next"]

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
