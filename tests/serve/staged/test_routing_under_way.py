"""Rules that change while messages flow: each message goes by those of the moment it was accepted, also in a replay."""

from __future__ import annotations

import asyncio
import signal

from broker.scenes import message
from oncebus.broker.addresses import Address
from oncebus.entities import FalseFilter, Rule, SqlAction, SqlFilter
from oncebus.outbox import Entry, Outbox
from oncebus.store import Mode
from serve.programs import until
from serve.stage import PATIENCE, Stage


def taken(stage: Stage, path: str) -> list[str]:
    async def take() -> list[str]:
        found: list[str] = []
        while batch := await stage.broker.receive(Address(path), 1000, mode=Mode.RECEIVE_AND_DELETE):
            found += [each.message.message_id for each in batch]
        return found

    stage.flow()
    return stage.run(take())


def test_a_rule_is_in_force_for_all_that_is_sent_after_the_call_returned(stage: Stage) -> None:
    stage.topic("flowing")
    path = stage.subscription("flowing", "some", Rule("none", FalseFilter()))
    everything = stage.subscription("flowing", "all")
    sent: list[str] = []
    marks: list[int] = []

    async def flow() -> None:
        stop = asyncio.Event()

        async def send(name: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                sent.append(f"{name}-{number}")
                await stage.broker.send("flowing", [message(sent[-1], user={"colour": "red"})])

        sending = [asyncio.create_task(send(f"s{at}")) for at in range(4)]
        for change in (
            lambda catalogue, now: catalogue.create_rule(
                "flowing", "some", Rule("red", SqlFilter("colour='red'")), now
            ),
            lambda catalogue, now: catalogue.delete_rule("flowing", "some", "red"),
        ):
            await asyncio.sleep(0.5)
            marks.append(len(sent))
            await stage.broker.change(change)
            marks.append(len(sent))
        await asyncio.sleep(0.5)
        stop.set()
        await asyncio.gather(*sending)

    stage.run(flow())
    added, in_force, removed, gone = marks
    arrived = taken(stage, path)
    assert len(set(arrived)) == len(arrived)
    # What was being sent at the moment of the call, one of each sender, may go either way.
    assert set(sent[in_force : removed - 4]) <= set(arrived)
    assert not set(arrived) & (set(sent[: added - 4]) | set(sent[gone:]))
    assert added > 10
    assert removed - in_force > 10
    assert sorted(taken(stage, everything)) == sorted(sent)


def test_a_batch_that_is_run_again_is_routed_alike(stage: Stage) -> None:
    """By rules that have changed since, and with ids that its own first run has put into the ledger."""
    stage.topic("replayed", requires_duplicate_detection=True)
    marked = Rule("marked", SqlFilter("colour = 'red'"), SqlAction("SET mark = newid()"))
    path = stage.subscription("replayed", "some", marked)
    stage.flow()

    async def send(names: str) -> None:
        await stage.broker.send("replayed", [message(name, user={"colour": "red"}) for name in names])

    with stage.pipeline_held_up():
        stage.run(send("abc"))
        stage.change(lambda catalogue, now: catalogue.delete_rule("replayed", "some", "marked"))
        stage.run(send("def"))
        stage.change(lambda catalogue, now: catalogue.create_rule("replayed", "some", Rule("all"), now))
        stage.run(send("gha"))
        position, last = stage.core.progress.position, stage.core.acceptor.last_commit
        # Nobody takes what the pipeline makes of it.
        stage.close_gateway()
    until(lambda: entries(stage, position)[-1:] and entries(stage, position)[-1].last >= last, "judged", limit=PATIENCE)
    stage.signal_pipeline(signal.SIGKILL)
    first = [row for entry in entries(stage, position) for row in entry.rows().to_pylist()]
    assert len(first) == 9

    # As if it had been killed just before its last entry was complete.
    *_, unfinished = entries(stage, position)
    for file in stage.folders.outbox.glob(f"{unfinished.first:020d}-*"):
        file.unlink()
    stage.start_pipeline()
    until(lambda: entries(stage, position)[-1:] and entries(stage, position)[-1].last >= last, "again", limit=PATIENCE)
    assert [row for entry in entries(stage, position) for row in entry.rows().to_pylist()] == first
    stage.open_gateway()
    assert taken(stage, path) == ["a", "b", "c", "g", "h"]
    assert [drop["messageId"] for drop in stage.client.drops("replayed")] == ["a"]


def entries(stage: Stage, position: int) -> list[Entry]:
    """What lies in the outbox behind a commit, complete."""
    outbox, found = Outbox(stage.folders.outbox), list[Entry]()
    while (entry := outbox.next_entry(found[-1].last if found else position)) is not None:
        found.append(entry)
    return found
