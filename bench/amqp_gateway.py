"""Runs the gateway of a benchmark until its standard input ends: amqp_gateway.py DATA FILL.

The gateway has a new data folder and one queue that detects duplicates. First it puts FILL messages into the queue;
they go through detection and routing in this process, not on Spark. When that is done it prints one line of JSON with
its process id and its connection string. With BENCH_PIPELINE=1 the pipeline on Spark runs beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from oncebus import amqp
from oncebus.broker.broker import Broker
from oncebus.broker.sending import Incoming
from oncebus.engine.engine import Engine
from oncebus.engine.folders import Folders
from oncebus.model.access import Right, connection_string
from oncebus.model.access.authorization_rule import fresh_rule
from oncebus.model.entities import Queue
from oncebus.pipeline.driver import LocalDriver
from oncebus.programs.serve.gateway import tune
from oncebus.protocols.http import listen
from oncebus.protocols.servicebus import make_server

SHARDS = 2
QUEUE = "bench"
BODY = b"x" * 200
AT_ONCE = 500
PIPELINE = (
    "import sys; from pathlib import Path; from oncebus.engine.folders import Folders; "
    "from oncebus.pipeline.process import run_pipeline; "
    f"run_pipeline(Folders(Path(sys.argv[1])), master='local[2]', shards={SHARDS}, parent=int(sys.argv[2]))"
)


def message() -> Incoming:
    identity = uuid.uuid4().hex
    head, body = amqp.encode_message(amqp.Properties(message_id=identity), None, BODY)
    return Incoming(head, body, identity)


async def fill(broker: Broker, folders: Folders, count: int) -> None:
    """Send messages, and wait until they have gone through detection and routing."""
    for at in range(0, count, AT_ONCE):
        await broker.send(QUEUE, [message() for _ in range(min(AT_ONCE, count - at))])
    pipeline = asyncio.create_task(LocalDriver(folders, shards=SHARDS).run())
    assert await broker.pipeline.wait_for(broker.pipeline.last_commit, 120), "the messages did not come through"
    pipeline.cancel()
    await asyncio.gather(pipeline, return_exceptions=True)


@contextlib.contextmanager
def spark(folders: Folders) -> Iterator[None]:
    """Run the pipeline as a separate process for the block."""
    with (folders.data / "spark.log").open("wb") as log:
        command = [sys.executable, "-c", PIPELINE, str(folders.data), str(os.getpid())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


async def serve(folders: Folders, count: int) -> None:
    broker = await Broker.open(Engine.files(folders, SHARDS))
    broker.start()
    queue = Queue(name=QUEUE, max_size_in_megabytes=5120, lock_duration=300_000_000, requires_duplicate_detection=True)
    await broker.change(lambda catalogue, now: catalogue.create(queue, now))
    with contextlib.ExitStack() as stack:
        if count:
            await fill(broker, folders, count)
        elif os.environ.get("BENCH_PIPELINE") == "1":
            stack.enter_context(spark(folders))
            await broker.send(QUEUE, [message()])
            assert await broker.pipeline.wait_for(broker.pipeline.last_commit, 120), "the pipeline did not start"
        # Send one message first: the first send reads from disk, and a gateway in use has done that.
        await broker.send(QUEUE, [message()])
        # A real gateway would not have the garbage of filling.
        gc.collect()
        rule = fresh_rule("bench", [Right.MANAGE])
        server = make_server(broker, namespace_rules=lambda: (rule,))
        listener = stack.enter_context(contextlib.closing(listen("127.0.0.1", 0)))
        await server.start(listener)
        string = connection_string("127.0.0.1", listener.getsockname()[1], rule, emulator=True)
        print(json.dumps({"pid": os.getpid(), "string": string}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop()
        await broker.close()


if __name__ == "__main__":
    data, wanted = sys.argv[1:]
    tune()
    asyncio.run(serve(Folders(Path(data)), int(wanted)))
