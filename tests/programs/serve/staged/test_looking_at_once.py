"""Tests that reads see earlier sends, although these have to go through Spark first."""

from __future__ import annotations

from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.broker.clock import wall_time
from oncebus.engine.store import Action, Mode, Outcome, Settlement
from oncebus.values.durations import HOUR
from tests.broker.scenes import ids, message
from tests.programs.serve.stage import Stage

DETECTS: dict[str, Any] = {"requires_duplicate_detection": True}


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_send_and_then_at_once_peek_count_list_and_cancel(stage: Stage, kind: str) -> None:
    sent_to, held_by = f"looked-at-{kind}", Address(f"looked-at-{kind}")
    if kind == "queue":
        stage.queue(sent_to, **DETECTS, requires_session=True)
    else:
        stage.topic(sent_to, **DETECTS)
        held_by = Address(stage.subscription(sent_to, "all", requires_session=True))
    broker = stage.broker

    async def look() -> None:
        await broker.send(sent_to, [message("a", session="one")])
        assert ids(await broker.peek(held_by, 0, 10)) == ["a"]
        await broker.send(sent_to, [message("b", session="one")])
        assert (await broker.counts(held_by.path)).active == 2
        await broker.send(sent_to, [message("c", session="two")])
        assert await broker.sessions(held_by) == ["one", "two"]
        await broker.send(sent_to, [message("c", session="two")])
        assert [drop.message_id for drop in await broker.duplicates(sent_to)] == ["c"]
        numbers = await broker.send(sent_to, [message("d", session="two", scheduled=wall_time() + HOUR)])
        assert await broker.cancel_scheduled(sent_to, [*numbers, 99]) == [Outcome.DONE, Outcome.MESSAGE_NOT_FOUND]
        assert (await broker.counts(sent_to)).scheduled == 0
        await broker.send(sent_to, [message("e", session="two")])
        assert await broker.delete_messages(held_by, wall_time() + HOUR, 10) == 4

    stage.run(look())


def test_a_message_is_received_by_its_number_at_once_after_it_was_deferred(stage: Stage) -> None:
    stage.queue("deferring")
    queue, broker = Address("deferring"), stage.broker

    async def defer() -> None:
        await broker.send("deferring", [message("a"), message("b")])
        assert ids(await broker.peek(queue, 0, 10)) == ["a", "b"]
        held = await broker.receive(queue, 2)
        await broker.settle(queue, [Settlement(Action.DEFER, each.message.token or b"") for each in held])
        # Receiving deferred messages waits for this one too.
        await broker.send("deferring", [message("c")])
        found = await broker.receive_deferred(queue, [2, 1], mode=Mode.RECEIVE_AND_DELETE)
        assert ids(found) == ["b", "a"]
        assert ids(await broker.peek(queue, 0, 10)) == ["c"]

    stage.run(defer())
