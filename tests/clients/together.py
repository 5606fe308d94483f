"""Scenarios that run at the same time, although each is a separate test.

A scenario mostly waits: for locks to expire, for messages to fall due, for clients that sleep. A function marked with
`together` becomes a test that waits for its scenario. All scenarios of a module, or of the modules with the same `ACT`,
start together. A scenario may be a coroutine. A scenario that yields runs in two halves: once all of them have yielded,
the module's function `at_half_time` runs, and then the second halves.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from types import ModuleType
from typing import Any

import pytest

from .served import Served

Scenario = Callable[[Served], Any]

PATIENCE = 150.0
"""How long a scenario may take on a busy machine, in seconds."""


def together(scenario: Scenario) -> Callable[[Played], None]:
    """Return the test that waits for a scenario."""

    def test(played: Played) -> None:
        played.wait_for(scenario)

    test.__name__, test.__qualname__ = scenario.__name__, scenario.__qualname__
    test.__module__, test.__doc__ = scenario.__module__, scenario.__doc__
    test.scenario = scenario  # type: ignore[attr-defined]
    return test


class Played:
    """Running scenarios."""

    def __init__(self, served: Served, scenarios: list[Scenario], at_half_time: Scenario | None) -> None:
        self._served = served
        self._second_half: Future[None] = Future()
        self._halves: list[Future[None]] = [Future() for _ in scenarios]
        self._results: dict[Scenario, Future[None]] = {each: Future() for each in scenarios}
        for scenario, half in zip(scenarios, self._halves, strict=True):
            run = threading.Thread(target=self._play, args=(scenario, half), name=scenario.__name__, daemon=True)
            run.start()
        if at_half_time is None:
            self._second_half.set_result(None)
            return
        wait_for(self._halves, PATIENCE)
        try:
            at_half_time(served)
            self._second_half.set_result(None)
        except BaseException as error:
            self._second_half.set_exception(error)
            raise

    def wait_for(self, scenario: Scenario) -> None:
        """Wait for a scenario, and raise the exception that it raised."""
        self._results[scenario].result(PATIENCE)

    def wait_for_all(self) -> None:
        """Wait until all scenarios have ended, successfully or not."""
        wait_for(self._results.values(), PATIENCE)

    def _play(self, scenario: Scenario, half: Future[None]) -> None:
        try:
            played = scenario(self._served)
            if inspect.iscoroutine(played):
                asyncio.run(played)
            elif inspect.isasyncgen(played):
                asyncio.run(self._async_halves(played, half))
            elif inspect.isgenerator(played):
                self._in_halves(played, half)
            self._results[scenario].set_result(None)
        except BaseException as error:
            self._results[scenario].set_exception(error)
        finally:
            if not half.done():
                half.set_result(None)

    def _in_halves(self, played: Iterator[object], half: Future[None]) -> None:
        next(played)
        half.set_result(None)
        self._second_half.result(PATIENCE)
        assert next(played, "ended") == "ended"

    async def _async_halves(self, played: AsyncIterator[object], half: Future[None]) -> None:
        await anext(played)
        half.set_result(None)
        await asyncio.wait_for(asyncio.wrap_future(self._second_half), PATIENCE)
        assert await anext(played, "ended") == "ended"


class Acts:
    """All acts. A module without an `ACT` is an act of its own."""

    def __init__(self, served: Served, items: list[pytest.Item]) -> None:
        self._served, self._items = served, items
        self._begun: dict[str, Played] = {}

    def begun(self, module: ModuleType) -> Played:
        """Return the act of a module, and start it if needed, with those of its scenarios that are selected to run."""
        act = _act_of(module)
        if act not in self._begun:
            functions = [each for each in self._items if isinstance(each, pytest.Function)]
            tests = [each.function for each in functions if _act_of(each.module) == act]
            scenarios = [test.scenario for test in tests if hasattr(test, "scenario")]
            at_half_time = getattr(module, "at_half_time", None)
            if at_half_time is not None:
                # Its `at_half_time` changes the broker, so no other act may run.
                self.wait_for_all()
            self._begun[act] = Played(self._served, scenarios, at_half_time)
        return self._begun[act]

    def wait_for_all(self) -> None:
        """Wait until no scenario runs."""
        for each in self._begun.values():
            each.wait_for_all()


def _act_of(module: ModuleType) -> str:
    return getattr(module, "ACT", module.__name__)
