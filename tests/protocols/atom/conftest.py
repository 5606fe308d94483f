from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from oncebus.model.entities import Tier
from tests.protocols.atom.served import Service, administration, served
from tests.protocols.http.http_front import Front, Shared, running_front


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Run scenarios that leave nothing behind on one broker with a queue `orders` and a topic `news`."""
    with asyncio.Runner() as runner:
        running = running_front(tmp_path_factory.mktemp("shared"), pipeline=False)
        front = runner.run(running.__aenter__())

        async def prepare() -> None:
            await front.queue("orders")
            await front.topic("news", "all")

        runner.run(prepare())

        def play(scenario: Callable[[Front], Awaitable[None]]) -> None:
            async def run() -> None:
                await scenario(front)

            runner.run(run())

        yield play
        runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a broker that the tests share. Each test has entities of its own."""
    with served(tmp_path_factory.mktemp("standard")) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[ServiceBusAdministrationClient]:
    """Return the official client with the root key."""
    with administration(service) as connected:
        yield connected


@pytest.fixture
def premium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceBusAdministrationClient]:
    """Return the official client for a broker in the Premium tier."""
    with served(tmp_path_factory.mktemp("premium"), Tier.PREMIUM) as running, administration(running) as connected:
        yield connected
