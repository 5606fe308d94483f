"""A broker without Spark behind real TLS, in a thread of its own, for blocking clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from azure.servicebus.management import ServiceBusAdministrationClient

from oncebus.broker.broker import Broker
from oncebus.broker.clock import wall_time
from oncebus.model.access import AuthorizationRule, KeyFile, connection_string
from oncebus.model.entities import Tier
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.protocols.http import listen, server
from tests.broker.in_process import running_broker
from tests.in_thread import in_thread

T = TypeVar("T")


class Reachable(Protocol):
    """The address, key and certificate that administration clients need."""

    @property
    def port(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def certificate(self) -> Path: ...

    @property
    def root(self) -> AuthorizationRule: ...


@dataclass
class Service:
    """A running broker, and what a client needs to reach it."""

    port: int
    certificate: Path
    keys: KeyFile
    broker: Broker
    loop: asyncio.AbstractEventLoop

    @property
    def root(self) -> AuthorizationRule:
        return self.keys.rules()[0]

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def run(self, doing: Awaitable[T]) -> T:
        """Run a coroutine on the broker's own loop, and return its result."""

        async def do() -> T:
            return await doing

        return asyncio.run_coroutine_threadsafe(do(), self.loop).result(60)


@contextmanager
def served(data: Path, tier: Tier = Tier.STANDARD, **options: Any) -> Iterator[Service]:
    """Run a broker at a free port until the block ends. `options` are those of `running_broker`."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Service]:
        loop = asyncio.get_running_loop()
        keys = KeyFile(data / "keys.json")
        keys.create()
        async with running_broker(data / "broker", tier=tier, **options) as broker:
            app = make_app(broker, namespace_rules=keys.rules, keys=keys)
            running = server(app, listen("127.0.0.1", 0), own_certificate(data, "localhost", wall_time()))
            await running.start()
            yield Service(running.port, data / CERTIFICATE, keys, broker, loop)
            await running.stop()

    with in_thread(run) as service:
        yield service


def administration(
    service: Reachable, rule: AuthorizationRule | None = None, api_version: str = "2024-05"
) -> ServiceBusAdministrationClient:
    """Return the official administration client for a service. It needs TLS, and trusts the service's certificate."""
    signer = rule or service.root
    text = connection_string("localhost", service.port, signer, False)
    return ServiceBusAdministrationClient.from_connection_string(
        text, api_version=api_version, connection_verify=str(service.certificate), retry_total=0
    )
