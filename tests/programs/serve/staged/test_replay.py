"""Tests that a batch gets the same result again after a kill just before its outbox entry was complete."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

import pytest

from oncebus.engine.outbox import Entry, Outbox
from oncebus.model.entities import Rule, SqlAction, SqlFilter
from oncebus.model.messages import Result
from tests.broker.scenes import message
from tests.programs.serve.programs import until
from tests.programs.serve.stage import PATIENCE, Stage

from .sessions import Sessions


@dataclass
class Replay:
    """The pipeline's rows from two runs of the same batch: a topic whose rules changed in between, and sessions."""

    first: list[Result]
    again: list[Result]
    subscription: str
    sessions: Sessions


@pytest.fixture(scope="module")
def replay(stage: Stage, begun: None, seed: int) -> Replay:
    sessions = Sessions(stage, "sessions", seed)
    stage.topic("replayed", requires_duplicate_detection=True)
    marked = Rule("marked", SqlFilter("colour = 'red'"), SqlAction("SET mark = newid()"))
    subscription = stage.subscription("replayed", "some", marked)

    async def send(names: str) -> None:
        await stage.broker.send("replayed", [message(name, user={"colour": "red"}) for name in names])

    stage.run(sessions.run_during(asyncio.sleep(1.0)))
    with stage.pipeline_held_up():
        stage.run(send("abc"))
        stage.change(lambda catalogue, now: catalogue.delete_rule("replayed", "some", "marked"))
        stage.run(send("def"))
        stage.run(sessions.run_during(asyncio.sleep(0.3)))
        stage.change(lambda catalogue, now: catalogue.create_rule("replayed", "some", Rule("all"), now))
        stage.run(send("gha"))
        position, last = stage.core.progress.position, stage.core.entrance.acceptor.last_commit
        # Without a gateway, nobody ingests the entries.
        stage.close_gateway()
    until(lambda: is_judged(stage, position, last), "all commits are processed", limit=PATIENCE)
    stage.signal_pipeline(signal.SIGKILL)
    first, *_, unfinished = rows(stage, position), *entries(stage, position)
    for file in stage.folders.outbox.glob(f"{unfinished.first:020d}-*"):
        file.unlink()
    stage.start_pipeline()
    until(lambda: is_judged(stage, position, last), "all commits are processed again", limit=PATIENCE)
    again = rows(stage, position)
    stage.open_gateway()
    stage.run(sessions.run_during(asyncio.sleep(0.3)))
    stage.run(sessions.receive_all(PATIENCE / 2))
    return Replay(first, again, subscription, sessions)


def test_a_batch_that_runs_again_gets_the_same_verdicts_and_routes(stage: Stage, replay: Replay) -> None:
    """The rules have changed since, and the ledger already has the ids from the batch's first run."""
    assert len(replay.first) > 9
    assert replay.again == replay.first
    assert stage.taken(replay.subscription) == ["a", "b", "c", "g", "h"]
    assert [drop["messageId"] for drop in stage.client.drops("replayed")] == ["a"]


def test_the_order_within_a_session_survives_a_kill(replay: Replay) -> None:
    replay.sessions.check()


def entries(stage: Stage, position: int) -> list[Entry]:
    """Return the complete outbox entries after a commit."""
    outbox, found = Outbox(stage.folders.outbox), list[Entry]()
    while (entry := outbox.next_entry(found[-1].last if found else position)) is not None:
        found.append(entry)
    return found


def is_judged(stage: Stage, position: int, last: int) -> bool:
    found = entries(stage, position)
    return bool(found) and found[-1].last >= last


def rows(stage: Stage, position: int) -> list[Result]:
    return [row for entry in entries(stage, position) for row in entry.rows()]
