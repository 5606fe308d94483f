"""Switching on detection for an existing entity: an extension beyond Azure."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncebus.values.durations import HOUR
from tests.protocols.http.http_front import LISTENER, ROOT, SENDER, Front, scenario, token


def test_detection_is_switched_on_and_the_answer_says_since_when(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("a/b", requires_duplicate_detection=False)
        answer = await front.ask("POST", "/a/b/$Detection", query="window=PT1H")
        changed = front.broker.catalogue.queue("a/b")
        assert (answer.status, changed.window) == (200, HOUR)
        assert answer.json | {"since": ""} == {
            "entity": "a/b",
            "requiresDuplicateDetection": True,
            "duplicateDetectionHistoryTimeWindow": "PT1H",
            "since": "",
        }
        await front.queue("keyed", requires_duplicate_detection=False)
        answer = await front.ask("POST", "/keyed/$detection", query="detection-key=property:a%20b")
        assert answer.json["oncebusDetectionKey"] == "property:a b"
        properties = {"BrokerProperties": '{"MessageId": "1"}'}
        for _ in range(2):
            assert (await front.ask("POST", "/a/b/messages", b"x", properties)).status == 201
        assert len((await front.ask("GET", "/a/b/$duplicates")).json["duplicates"]) == 1

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("path", "query", "status", "text"),
    [
        ("/detects/$detection", "", 400, "The queue 'detects' detects duplicates already."),
        ("/plain/$detection", "window=PT5S", 400, "must be between 00:00:20 and 7.00:00:00."),
        ("/plain/$detection", "window=soon", 400, "soon"),
        ("/plain/$detection", "detection-key=x", 400, "not one of messageId, body, property:NAME."),
        ("/plain/$detection", "detection-key=property:%01", 400, "not one of messageId, body, property:NAME."),
        ("/plain/$DeadLetterQueue/$detection", "", 404, "plain"),
        ("/gone/$detection", "", 404, "'gone'"),
    ],
)
def test_the_error_names_the_reason(tmp_path: Path, path: str, query: str, status: int, text: str) -> None:
    async def play(front: Front) -> None:
        await front.queue("plain", requires_duplicate_detection=False)
        await front.queue("detects", requires_duplicate_detection=True)
        answer = await front.ask("POST", path, query=query)
        assert answer.status == status
        assert text in answer.text
        assert front.broker.catalogue.queue("plain").window is None

    scenario(tmp_path, play, pipeline=False)


def test_it_needs_manage(tmp_path: Path) -> None:
    async def play(front: Front) -> None:
        await front.queue("plain", requires_duplicate_detection=False)
        for rule, status in ((SENDER, 401), (LISTENER, 401), (ROOT, 200)):
            answer = await front.ask("POST", "/plain/$detection", token=token(front.time, rule))
            assert answer.status == status

    scenario(tmp_path, play, pipeline=False)
