"""The application over a broker in the test's own process, called without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette

from oncebus.broker.broker import Broker
from oncebus.broker.core import Core
from oncebus.model.access import AuthorizationRule, Issuer, Right, make_token
from oncebus.model.entities import Queue, Subscription, Tier, Topic
from oncebus.programs.serve.app import make_app
from oncebus.protocols.http import Limits
from oncebus.values.durations import HOUR
from tests.broker.in_process import FakeTime, running_broker

HOST = "bus.example.org"
ROOT = AuthorizationRule("RootManageSharedAccessKey", frozenset({Right.MANAGE}), "root-one", "root-two")
SENDER = AuthorizationRule("sender", frozenset({Right.SEND}), "sender-one", "sender-two")
LISTENER = AuthorizationRule("listener", frozenset({Right.LISTEN}), "listener-one", "listener-two")
NAMESPACE = (ROOT, SENDER, LISTENER)

BATCH = "application/vnd.microsoft.servicebus.json"
LIMITS = Limits(batch_messages=20, batch_bytes=1 << 20, longest_wait_seconds=5.0)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.headers["brokerproperties"])
        return found

    @property
    def lock(self) -> str:
        return self.headers["location"].partition(HOST)[2]


Shared = Callable[[Callable[["Front"], Awaitable[None]]], None]
"""Runs a scenario on the broker that several tests share."""


def token(time: FakeTime, rule: AuthorizationRule = ROOT, resource: str = "", expires: int | None = None) -> str:
    return make_token(f"sb://{HOST}/{resource}", rule.name, rule.primary_key, expires or time.now + HOUR)


@dataclass
class Front:
    """Sends requests to the application. Paths are raw."""

    app: Starlette
    broker: Broker
    core: Core
    time: FakeTime

    async def ask(
        self,
        method: str,
        path: str | bytes,
        body: bytes = b"",
        headers: dict[str, str] | list[tuple[bytes, bytes]] | None = None,
        *,
        query: str | bytes = "",
        token: str | None = "",
        chunks: list[bytes] | None = None,
        stalls: bool = False,
    ) -> Answer:
        raw = path if isinstance(path, bytes) else path.encode("ascii")
        given = headers if isinstance(headers, list) else [(n.encode(), v.encode()) for n, v in (headers or {}).items()]
        sent = [(b"host", HOST.encode()), *given]
        if chunks is None:
            sent.append((b"content-length", str(len(body)).encode()))
        else:
            sent.append((b"transfer-encoding", b"chunked"))
        if token is not None:
            sent.append((b"authorization", (token or _token(self.time)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": "/ignored",
            "raw_path": raw,
            "query_string": query if isinstance(query, bytes) else query.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in sent],
            "extensions": {"oncebus.header_names": [name for name, _ in sent]},
            "client": None,
            "server": (HOST, 80),
        }
        waiting = [body] if chunks is None else list(chunks) or [b""]
        done = asyncio.Event()
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(0), "more_body": stalls or bool(waiting)}
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answers.append(message)

        await self.app(scope, receive, send)
        done.set()
        start = answers[0]
        return Answer(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message["body"] for message in answers[1:]),
        )

    async def send(
        self, entity: str, body: bytes = b"hello", headers: dict[str, str] | None = None, /, **properties: object
    ) -> Answer:
        given = dict(headers or {})
        if properties:
            given["BrokerProperties"] = json.dumps(properties)
        return await self.ask("POST", f"/{entity}/messages", body, given)

    async def take(self, entity: str, *, wait: float = 5.0) -> Answer:
        """Receive and delete a message."""
        return await self.ask("DELETE", f"/{entity}/messages/head", query=f"timeout={wait}")

    async def peek_lock(self, entity: str, *, wait: float = 5.0) -> Answer:
        return await self.ask("POST", f"/{entity}/messages/head", query=f"timeout={wait}")

    async def take_all(self, entity: str) -> list[str]:
        """Receive and delete all messages, and return their ids in order."""
        await self.broker.counts(entity)
        ids = []
        while (answer := await self.take(entity, wait=0)).status == 200:
            ids.append(answer.properties["MessageId"])
        return ids

    async def queue(self, name: str = "orders", /, **options: Any) -> None:
        await self.broker.change(lambda catalogue, now: catalogue.create(Queue(name=name, **options), now))

    async def topic(self, name: str, *subscriptions: str, **options: Any) -> None:
        await self.broker.change(lambda catalogue, now: catalogue.create(Topic(name=name, **options), now))
        for each in subscriptions:
            await self.broker.change(
                lambda catalogue, now, each=each: catalogue.create(  # type: ignore[misc]
                    Subscription(topic=name, name=each), now
                )
            )


def _token(time: FakeTime) -> str:
    return token(time)


@asynccontextmanager
async def running_front(
    data: Path,
    *,
    tier: Tier = Tier.STANDARD,
    limits: Limits = LIMITS,
    rules: Callable[[], tuple[AuthorizationRule, ...]] = lambda: NAMESPACE,
    host: str | None = HOST,
    issuer: Issuer | None = None,
    **options: Any,
) -> AsyncIterator[Front]:
    time = FakeTime()
    async with running_broker(data, time, tier=tier, **options) as broker:
        core = broker._core
        app = make_app(broker, namespace_rules=rules, host=host, issuer=issuer, limits=limits)
        yield Front(app, broker, core, time)


def scenario(data: Path, play: Callable[[Front], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with running_front(data, **options) as front:
            await play(front)

    asyncio.run(run())


def in_path(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")
