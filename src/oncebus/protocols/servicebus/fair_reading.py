"""Shares the event loop among connections: a peer can send more frames at once than one iteration may process.

A bound on bytes would not do: 256 KB of small frames are seconds of work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from oncebus.amqp.limits import READING_SECONDS, UNTRUSTED_READING_SECONDS


class InputReader(Protocol):
    """A connection with input to process."""

    @property
    def is_known(self) -> bool:
        """Return whether the peer has authenticated."""

    def step(self) -> bool:
        """Process a small part of the input. Return whether there is more that may be processed now."""


class _Queue:
    """Readers that wait, and the time that they may use and have used in this iteration of the loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.used = 0.0
        self.waiting: deque[InputReader] = deque()


class FairReading:
    """Lets readers process their input in small steps, one after the other.

    In one iteration of the event loop all of them together use about `READING_SECONDS`, and those that have not
    authenticated `UNTRUSTED_READING_SECONDS`, however many they are. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._known = _Queue(READING_SECONDS)
        self._strangers = _Queue(UNTRUSTED_READING_SECONDS)
        self._waiting: set[InputReader] = set()
        self._is_scheduled = False

    def run(self, reader: InputReader) -> bool:
        """Let a reader take a step now, or later if others wait or the time of this iteration is used up.

        Return whether it waits.
        """
        if reader in self._waiting:
            return True
        queue = self._known if reader.is_known else self._strangers
        if not queue.waiting and queue.used < queue.seconds and not self._step(reader, queue):
            is_waiting = False
        else:
            queue.waiting.append(reader)
            self._waiting.add(reader)
            is_waiting = True
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)
        return is_waiting

    def _step(self, reader: InputReader, queue: _Queue) -> bool:
        began = self._clock()
        try:
            return reader.step()
        finally:
            queue.used += self._clock() - began

    def _begin_iteration(self) -> None:
        self._is_scheduled = False
        try:
            for queue in (self._known, self._strangers):
                queue.used = 0.0
                while queue.waiting and queue.used < queue.seconds:
                    reader = queue.waiting.popleft()
                    self._waiting.discard(reader)
                    if self._step(reader, queue) and reader not in self._waiting:
                        # At the end, and in the other queue if it has authenticated meanwhile.
                        (self._known if reader.is_known else self._strangers).waiting.append(reader)
                        self._waiting.add(reader)
        finally:
            # Even if a step fails: the other readers must not wait for ever.
            if self._waiting and not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._begin_iteration)
