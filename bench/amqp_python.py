"""Makes load with the official Python client: amqp_python.py sync|aio single|batch|receive SECONDS.

One sender awaits each message, or each batch of 100. One receiver asks for 100 messages and completes each.
SERVICEBUS_CONNECTION_STRING and QUEUE name the queue. Prints the same line as `bench.amqp_load`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient

BODY = b"x" * 200
BATCH = 100
PATIENCE = 1.0
STRING = os.environ["SERVICEBUS_CONNECTION_STRING"]
QUEUE = os.environ["QUEUE"]


def message() -> ServiceBusMessage:
    return ServiceBusMessage(BODY, message_id=uuid.uuid4().hex)


def messages(kind: str) -> ServiceBusMessage | list[ServiceBusMessage]:
    return message() if kind == "single" else [message() for _ in range(BATCH)]


class Count:
    """Counts messages and seconds from the moment the connection is open."""

    def __init__(self, seconds: float) -> None:
        self._began = self._last = time.perf_counter()
        self._cpu = time.process_time()
        self._end = self._began + seconds
        self._count = 0

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._end

    def add(self, count: int) -> None:
        self._count += count
        self._last = time.perf_counter()

    def result(self) -> dict[str, Any]:
        return {
            "messages": self._count,
            "seconds": self._last - self._began,
            "cpu": time.process_time() - self._cpu,
        }


def run(kind: str, seconds: float) -> dict[str, Any]:
    with ServiceBusClient.from_connection_string(STRING) as client:
        if kind == "receive":
            with client.get_queue_receiver(QUEUE) as receiver:
                count = Count(seconds)
                while not count.is_over and (got := receiver.receive_messages(BATCH, PATIENCE)):
                    for each in got:
                        receiver.complete_message(each)
                    count.add(len(got))
                return count.result()
        with client.get_queue_sender(QUEUE) as sender:
            count = Count(seconds)
            while not count.is_over:
                sender.send_messages(messages(kind))
                count.add(1 if kind == "single" else BATCH)
            return count.result()


async def run_async(kind: str, seconds: float) -> dict[str, Any]:
    async with AsyncClient.from_connection_string(STRING) as client:
        if kind == "receive":
            async with client.get_queue_receiver(QUEUE) as receiver:
                count = Count(seconds)
                while not count.is_over and (got := await receiver.receive_messages(BATCH, PATIENCE)):
                    for each in got:
                        await receiver.complete_message(each)
                    count.add(len(got))
                return count.result()
        async with client.get_queue_sender(QUEUE) as sender:
            count = Count(seconds)
            while not count.is_over:
                await sender.send_messages(messages(kind))
                count.add(1 if kind == "single" else BATCH)
            return count.result()


if __name__ == "__main__":
    style, kind, seconds = sys.argv[1:]
    found = run(kind, float(seconds)) if style == "sync" else asyncio.run(run_async(kind, float(seconds)))
    print(json.dumps(found))
