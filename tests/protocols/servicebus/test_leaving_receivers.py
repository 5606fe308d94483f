"""Receivers that close while their last settlements are in flight."""

from __future__ import annotations

import asyncio
from pathlib import Path

from oncebus.amqp.outcomes import Accepted, ReceivedState
from oncebus.amqp.performatives import Detach, Disposition, Source
from oncebus.amqp.types import Symbol
from oncebus.protocols.servicebus.messages import incoming_message
from tests.amqp.client import credit

from .bus import PATIENCE
from .raw import Stage, message, of, play


async def put(stage: Stage) -> None:
    await stage.broker.send("orders", [incoming_message(message(b"x"))])
    await stage.broker.counts("orders")


def test_a_receiver_that_completes_and_closes_gets_both_answers_in_that_order(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage)
        client = stage.client()
        await client.attached(of("orders", rcv_settle_mode=1, snd_settle_mode=0), given=1)
        ((transfer, _),) = await client.received(1)
        number = transfer.delivery_id or 0
        client.do(Disposition(role=True, first=number, state=Accepted()), Detach(handle=0, closed=True))
        # `outcomes` skips other frames: the detach must not be among those.
        assert await client.outcomes(1) == {number: Accepted()}
        assert (await client.next(Detach))[0].error is None
        assert (await stage.broker.counts("orders")).active == 0

    play(tmp_path, scenario)


def test_a_receiver_that_settles_nothing_and_closes_is_answered(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await put(stage)
        client = stage.client()
        await client.attached(of("orders", rcv_settle_mode=1, snd_settle_mode=0), given=1)
        ((transfer, _),) = await client.received(1)
        number = transfer.delivery_id or 0
        client.do(Disposition(role=True, first=number, state=ReceivedState(0, 0)), Detach(handle=0, closed=True))
        assert (await client.next(Detach))[0].error is None
        assert (await stage.broker.counts("orders")).active == 1

    play(tmp_path, scenario)


def test_nothing_is_left_of_receivers_that_close_while_they_look_for_messages(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.queue("sessions", requires_session=True)
        client, before = stage.client(), asyncio.all_tasks()
        source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): "s"})
        for attach in (of("orders"), of("sessions", source=source)):
            await client.attached(attach)
            client.do(credit(1))
            # Now it has asked the store, which has not answered yet.
            await asyncio.sleep(0)
            client.do(Detach(handle=0, closed=True))
            await client.next(Detach)
        async with asyncio.timeout(PATIENCE):
            while asyncio.all_tasks() - before:
                await asyncio.sleep(0.005)

    play(tmp_path, scenario)
