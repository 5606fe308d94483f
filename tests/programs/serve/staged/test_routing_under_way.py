"""Tests rules that change over HTTP while messages flow: each message is routed by the rules at its acceptance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from oncebus.model.entities import FalseFilter, Rule
from tests.broker.scenes import message
from tests.programs.serve.programs import until
from tests.programs.serve.stage import Stage
from tests.protocols.atom.admin import VERSION, description

SENDERS = 4
RED = description(
    "RuleDescription", "<Filter i:type=\"SqlFilter\"><SqlExpression>colour = 'red'</SqlExpression></Filter>"
)


class Flow:
    """Sends messages to a topic, several at a time. Records in which order sends began, and were accepted."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.begun: list[str] = []
        self.accepted: list[str] = []
        self._stage, self._topic = stage, topic

    @contextmanager
    def under_way(self) -> Iterator[None]:
        stop = asyncio.Event()
        running = self._stage.start(self._send_all(stop))
        try:
            self.goes_on()
            yield
            self.goes_on()
        finally:
            self._stage.call(stop.set)
            running.result(60)

    def goes_on(self) -> None:
        """Wait until some more messages of each sender are accepted."""
        before = len(self.accepted)
        until(lambda: len(self.accepted) > before + 10 * SENDERS, "messages flow")

    async def _send_all(self, stop: asyncio.Event) -> None:
        await asyncio.gather(*(self._send(f"s{number}", stop) for number in range(SENDERS)))

    async def _send(self, name: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            identity = f"{name}-{len(self.begun)}"
            self.begun.append(identity)
            await self._stage.broker.send(self._topic, [message(identity, user={"colour": "red"})])
            self.accepted.append(identity)


def test_a_rule_applies_to_all_messages_sent_after_the_call_returned(stage: Stage) -> None:
    stage.topic("flowing")
    some = stage.subscription("flowing", "some", Rule("none", FalseFilter()))
    everything = stage.subscription("flowing", "all")
    rule = f"/{some}/rules/red?{VERSION}"
    flow = Flow(stage, "flowing")
    with flow.under_way():
        before = len(flow.accepted)
        assert stage.client.exchange("PUT", rule, RED)[0] == 201
        in_force = len(flow.begun)
        flow.goes_on()
        until_removed = len(flow.accepted)
        assert stage.client.exchange("DELETE", rule)[0] == 200
        removed = len(flow.begun)
    arrived = stage.taken(some)
    assert len(set(arrived)) == len(arrived)
    # For messages that were being sent during a call, both results are right.
    wanted = {*flow.begun[in_force:]} & {*flow.accepted[:until_removed]}
    assert wanted
    assert wanted <= {*arrived}
    assert not {*arrived} & {*flow.accepted[:before], *flow.begun[removed:]}
    assert sorted(stage.taken(everything)) == sorted(flow.begun) == sorted(flow.accepted)
