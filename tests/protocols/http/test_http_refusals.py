"""Refused requests in the record of refusals and in the metrics."""

from __future__ import annotations

from pathlib import Path

from tests.protocols.http.http_front import LISTENER, ROOT, SENDER, Front, scenario, token


def test_refusals_are_counted_by_entity_and_reason(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        await front.queue("quiet")
        assert (await front.send("orders")).status == 201
        assert (await front.send("orders", b"x" * 300_000)).status == 413
        assert (await front.ask("POST", "/orders/messages", token=token(front.time, LISTENER))).status == 401
        assert (await front.ask("POST", "/orders/messages", token=None)).status == 401
        for name in ("nowhere", "elsewhere"):
            assert (await front.send(name)).status == 404
        answer = await front.ask("GET", "/orders/$refusals")
        assert answer.status == 200
        found = answer.json
        assert (found["entity"], found["counts"]) == ("orders", {"too-large": 1, "unauthorized": 2})
        assert [(each["reason"], each["count"]) for each in found["refusals"]] == [
            ("too-large", 1),
            ("unauthorized", 2),
        ]
        assert found["refusals"][0]["text"].startswith("The received message (size:300000) exceeds the limit")
        assert (await front.ask("GET", "/quiet/$refusals")).json == {"entity": "quiet", "counts": {}, "refusals": []}
        lines = (await front.ask("GET", "/metrics")).text.splitlines()
        assert [line for line in lines if line.startswith("oncebus_requests_refused_total")] == [
            'oncebus_requests_refused_total{entity="orders",kind="queue",reason="too-large"} 1.0',
            'oncebus_requests_refused_total{entity="orders",kind="queue",reason="unauthorized"} 2.0',
            'oncebus_requests_refused_total{reason="not-found"} 2.0',
        ]

    scenario(tmp_path, play)


def test_the_record_of_refusals_needs_manage(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue()
        for rule, status in ((SENDER, 401), (LISTENER, 401), (ROOT, 200)):
            assert (await front.ask("GET", "/orders/$refusals", token=token(front.time, rule))).status == status
        assert (await front.ask("GET", "/nowhere/$refusals")).status == 404
        assert (await front.ask("POST", "/orders/$refusals")).status == 405

    scenario(tmp_path, play)
