from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from oncebus.model.access import AuthorizationRule
from tests.protocols.http.http_front import ROOT

from .visitor import Play, portal, visiting

Shared = Callable[..., None]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Run scenarios that leave no trace on one broker with a queue `orders` and a topic `news`."""
    addresses = (f"10.1.{high}.{low}" for high in range(256) for low in range(256))
    with asyncio.Runner() as runner:
        running = portal(tmp_path_factory.mktemp("shared"), names=["bus.example.org"])
        front = runner.run(running.__aenter__())
        runner.run(front.queue("orders"))
        runner.run(front.topic("news", "all"))

        def play(scenario: Play, *, rule: AuthorizationRule | None = ROOT) -> None:
            async def run() -> None:
                async with visiting(front, address=next(addresses)) as visitor:
                    if rule is not None:
                        await visitor.sign_in(rule)
                    await scenario(visitor)

            runner.run(run())

        yield play
        runner.run(running.__aexit__(None, None, None))
