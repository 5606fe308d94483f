"""Tests a restart with very many waiting messages: prints how long it takes, and checks that none is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from .clients import Client, everything_below, kill_everything
from .programs import until
from .services import everything_in, opened, service

MESSAGES = 100_000
AT_ONCE = 1000
PATIENCE = 600.0
ENTITIES: list[dict[str, object]] = [{"type": "queue", "name": "waiting", "requiresDuplicateDetection": True}]


@pytest.mark.torture
def test_a_restart_with_a_hundred_thousand_messages_waiting(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(MESSAGES)]
    in_store = MESSAGES * 3 // 5

    def send(client: Client, some: list[str]) -> None:
        for start in range(0, len(some), AT_ONCE):
            batch: list[tuple[str, dict[str, object]]] = [("x" * 100, {"MessageId": n}) for n in some[start:][:AT_ONCE]]
            assert client.send_batch("waiting", batch) == 201

    def active(client: Client) -> int:
        return client.metric("messages", entity="waiting", state="active")

    with service(tmp_path, "first", ENTITIES) as running:
        client = Client(running.ready(), tmp_path / "data")
        send(client, names[:in_store])
        until(lambda: active(client) == in_store, "most are in the store", limit=PATIENCE)
        pipeline = running.child("pipeline")
        for pid in (pipeline, *everything_below(pipeline)):
            os.kill(pid, signal.SIGSTOP)
        send(client, names[in_store:])
        assert active(client) == in_store
        kill_everything(running)

    began = time.monotonic()
    with service(tmp_path, "second", ENTITIES) as running:
        client = Client(running.ready(), tmp_path / "data")
        print(
            f"{MESSAGES} waiting, {MESSAGES - in_store} of them in the inbox: ready in {time.monotonic() - began:.1f} s"
        )
        until(lambda: active(client) == MESSAGES, "all are there", limit=PATIENCE)
        print(f"all in the store after {time.monotonic() - began:.1f} s")
        send(client, names)
        until(
            lambda: client.metric("messages_duplicates_total", entity="waiting") == MESSAGES,
            "all ids are remembered",
            limit=PATIENCE,
        )
        assert running.stop() == 0

    async def left() -> list[str]:
        async with opened(tmp_path / "data") as broker:
            return await everything_in(broker, "waiting")

    assert asyncio.run(left()) == names
