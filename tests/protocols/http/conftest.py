from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.protocols.http.http_front import Front, Shared, running_front


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Run scenarios that leave nothing behind on one broker: queues `orders`, `a/b` and `props`, a topic `news`."""
    with asyncio.Runner() as runner:
        running = running_front(tmp_path_factory.mktemp("shared"))
        front = runner.run(running.__aenter__())

        async def prepare() -> None:
            await front.queue("orders")
            await front.queue("a/b")
            await front.queue("props")
            await front.topic("news", "all")

        runner.run(prepare())

        def play(scenario: Callable[[Front], Awaitable[None]]) -> None:
            async def run() -> None:
                await scenario(front)

            runner.run(run())

        yield play
        runner.run(running.__aexit__(None, None, None))
