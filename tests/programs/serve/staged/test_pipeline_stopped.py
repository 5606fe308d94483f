"""Tests that messages are accepted while the pipeline is paused, up to a limit, and delivered when it continues."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from tests.programs.serve.programs import until
from tests.programs.serve.stage import PATIENCE, Stage

DETECTS: dict[str, Any] = {"requires_duplicate_detection": True}
BODY = "x" * 20_000
LIMIT = 30 * len(BODY)
BUSY = "The server is busy: "


class Sender(threading.Thread):
    """Sends until `end` is called. Repeats a refused message until it is accepted, and some accepted ones once more."""

    def __init__(self, stage: Stage, queue: str, name: str) -> None:
        super().__init__()
        self.accepted: list[str] = []
        self.refusals: list[tuple[int, str | None, str]] = []
        self._client, self._path = stage.client, f"/{queue}/messages"
        self._called = name
        self._ended = threading.Event()

    def run(self) -> None:
        for number in count():
            identity = f"{self._called}-{number}"
            for _ in range(2 if number % 5 == 0 else 1):
                while (answer := self._send(identity))[0] != 201:
                    self.refusals.append((answer[0], answer[1].get("retry-after"), answer[2]))
                    if self._ended.wait(0.05):
                        return
            self.accepted.append(identity)
            if self._ended.wait(0.005):
                return

    def _send(self, identity: str) -> tuple[int, dict[str, str], str]:
        properties = {"BrokerProperties": json.dumps({"MessageId": identity})}
        return self._client.request("POST", self._path, BODY, properties)

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def senders(stage: Stage, queue: str, number: int = 3) -> Iterator[list[Sender]]:
    made = [Sender(stage, queue, f"s{at}") for at in range(number)]
    for sender in made:
        sender.start()
    try:
        yield made
    finally:
        for sender in made:
            sender.end()


def accepted(made: list[Sender]) -> int:
    return sum(len(sender.accepted) for sender in made)


def test_messages_sent_under_load_while_it_is_paused_are_accepted_and_delivered_once(stage: Stage) -> None:
    stage.queue("held-up", **DETECTS)
    with senders(stage, "held-up") as made:
        until(lambda: accepted(made) > 10, "load")
        with stage.pipeline_held_up():
            before = accepted(made)
            until(lambda: accepted(made) > before + 100, "sends are accepted")
            # A commit holds no more than one message of each sender.
            assert stage.broker.pipeline.lag > 30
        after = accepted(made)
        until(lambda: accepted(made) > after + 10, "sends continue")
    assert [sender.refusals for sender in made] == [[], [], []]
    check_delivered_once(stage, "held-up", made)


def test_at_the_limit_sends_are_refused_until_the_pipeline_continues(stage: Stage) -> None:
    stage.queue("limited", **DETECTS)
    stage.close_gateway()
    stage.open_gateway(most_bytes=LIMIT)
    try:
        with senders(stage, "limited") as made:
            until(lambda: accepted(made) > 10, "load")
            with stage.pipeline_held_up():
                until(lambda: all(sender.refusals for sender in made), "the limit is reached")
                for sender in made:
                    status, retry_after, text = sender.refusals[0]
                    assert (status, retry_after) == (503, "10")
                    assert BUSY in text
                    assert f"and its share of {LIMIT} is used up. Please retry the operation later." in text
                assert stage.core.accounting.in_pipeline(stage.broker.catalogue.queue("limited").id) <= LIMIT
                # Receivers are not refused.
                received = stage.client.receive("limited", 0)
            after = accepted(made)
            until(lambda: accepted(made) > after + 30, "sends continue", limit=PATIENCE)
    finally:
        stage.close_gateway()
        stage.open_gateway()
    check_delivered_once(stage, "limited", made, [] if received is None else [received[0]])


def test_at_an_entitys_quota_sends_are_refused_until_there_is_room(stage: Stage) -> None:
    """Messages count towards the quota in the pipeline, and also after they have come out of it."""
    small = replace(stage.queue("full", **DETECTS), max_size_in_megabytes=1)
    # Set directly, because the service does not allow such a small quota.
    stage.change(
        lambda catalogue, _: replace(
            catalogue, version=catalogue.version + 1, entities={**catalogue.entities, small.name: small}
        )
    )
    with senders(stage, "full") as made:
        until(lambda: accepted(made) > 10, "load")
        with stage.pipeline_held_up():
            until(lambda: all(sender.refusals for sender in made), "the entity is full")
            assert stage.core.accounting.in_pipeline(small.id) > 0
        stage.flow()
        before = [len(sender.refusals) for sender in made]
        until(
            lambda: all(len(sender.refusals) > so_far for sender, so_far in zip(made, before, strict=True)),
            "the entity is still full",
        )
        after = accepted(made)
        # Not all: new messages come while these are received.
        received = [found[0] for found in (stage.client.receive("full", 0) for _ in range(30)) if found is not None]
        assert len(received) == 30
        until(lambda: accepted(made) > after + 10, "sends continue", limit=PATIENCE)
    for sender in made:
        for status, retry_after, text in sender.refusals:
            assert (status, retry_after) == (403, None)
            assert "The maximum entity size has been reached or exceeded for Queue: 'full'. " in text
            assert f"Max entity size in bytes:{1 << 20}." in text
    check_delivered_once(stage, "full", made, received)


def check_delivered_once(stage: Stage, queue: str, made: list[Sender], received: Sequence[str] = ()) -> None:
    stage.flow()
    arrived = [*received, *(properties["MessageId"] for properties, _ in stage.client.receive_all(queue))]
    assert len(set(arrived)) == len(arrived)
    assert {identity for sender in made for identity in sender.accepted} <= set(arrived)
