"""Makes load over HTTP, and prints the accepted messages per second.

http_load.py PORT QUEUE SENDERS BATCH SECONDS BODY TOKEN

Each sender has its own connection and awaits each answer. It does just enough HTTP to cost little itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
import uuid

BACK_OFF_SECONDS = 0.2
_IDS = itertools.count(uuid.uuid4().int >> 64 << 64)


def request(queue: str, batch: int, body: int, token: str) -> bytes:
    content = "x" * body
    head = [f"POST /{queue}/messages HTTP/1.1", "Host: 127.0.0.1", f"Authorization: {token}"]
    if batch == 1:
        head += ["BrokerProperties: " + json.dumps({"MessageId": f"{next(_IDS):032x}"})]
        payload = content.encode()
    else:
        head += ["Content-Type: application/vnd.microsoft.servicebus.json"]
        messages = [{"Body": content, "BrokerProperties": {"MessageId": f"{next(_IDS):032x}"}} for _ in range(batch)]
        payload = json.dumps(messages).encode()
    return "\r\n".join([*head, f"Content-Length: {len(payload)}", "", ""]).encode() + payload


async def sender(port: int, queue: str, batch: int, end: float, body: int, token: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    while time.perf_counter() < end:
        writer.write(request(queue, batch, body, token))
        answer = await reader.readuntil(b"\r\n\r\n")
        if answer.startswith(b"HTTP/1.1 503"):
            # The server is busy: retry a little later.
            length = next(line for line in answer.lower().splitlines() if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            await asyncio.sleep(BACK_OFF_SECONDS)
            continue
        if not answer.startswith(b"HTTP/1.1 201"):
            raise SystemExit(answer.decode())
        sent += batch
    writer.close()
    return sent


async def load(port: int, queue: str, senders: int, batch: int, seconds: float, body: int, token: str) -> float:
    began = time.perf_counter()
    end = began + seconds
    sent = await asyncio.gather(*(sender(port, queue, batch, end, body, token) for _ in range(senders)))
    return sum(sent) / (time.perf_counter() - began)


if __name__ == "__main__":
    port, queue, senders, batch, seconds, body, token = sys.argv[1:]
    print(asyncio.run(load(int(port), queue, int(senders), int(batch), float(seconds), int(body), token)))
