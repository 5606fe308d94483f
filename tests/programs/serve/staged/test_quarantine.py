"""Tests that a row that cannot be processed goes to quarantine, and that others continue."""

from __future__ import annotations

import json
from typing import Any

from oncebus.broker.sending import Incoming
from oncebus.model.entities import Rule, SqlFilter
from tests.broker.scenes import message
from tests.programs.serve.stage import Stage

# A properties section whose length field is too large.
MALFORMED = b"\x00\x53\x73\xc0\x03\x01\xa1\x05"


def quarantined(stage: Stage, entity: str) -> list[dict[str, Any]]:
    status, _, text = stage.client.request("GET", f"/$quarantine?entity={entity}")
    assert status == 200, text
    found: list[dict[str, Any]] = json.loads(text)["quarantined"]
    return found


def test_a_row_that_cannot_be_processed_is_shown_and_others_continue(stage: Stage) -> None:
    stage.topic("poisoned", requires_duplicate_detection=True)
    asking = stage.subscription("poisoned", "asking", Rule("red", SqlFilter("colour = 'red'")))
    stage.queue("neighbour")
    poison = Incoming(MALFORMED, b"", "poison")

    async def send() -> None:
        red = [message(name, user={"colour": "red"}) for name in ("before", "after")]
        await stage.broker.send("poisoned", [red[0], poison, red[1]])
        await stage.broker.send("poisoned", [poison])
        await stage.broker.send("neighbour", [message("a")])

    stage.run(send())
    stage.flow()
    shown = quarantined(stage, "poisoned")
    expected = {"entity": "poisoned", "messageId": "poison", "sequenceNumber": 2, "reason": "DecodeError"}
    assert [{name: each[name] for name in expected} for each in shown] == [expected]
    assert shown[0]["description"]
    assert shown[0]["size"] == len(MALFORMED)
    received = [properties["MessageId"] for properties, _ in stage.client.receive_all(asking)]
    assert received == ["before", "after"]
    # The message was accepted, so its id is remembered, and it is counted.
    assert [drop["messageId"] for drop in stage.client.drops("poisoned")] == ["poison"]
    assert stage.client.metric("messages_quarantined_total", entity="poisoned") == 1
    assert quarantined(stage, "neighbour") == []
    assert stage.client.receive("neighbour", 0) == ("a", "")
    assert stage.client.health() == 200
