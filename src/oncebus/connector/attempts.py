"""Repeats calls to the broker: for how long one attempt may take, and how long to wait between two."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from oncebus.connector.failures import failure, log_retry, may_pass
from oncebus.errors import OncebusError

T = TypeVar("T")
LONGEST_ATTEMPT = 75.0
"""In seconds: longer than the client's own limit, which does not apply while it opens a connection."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


def retry(call: Callable[[], T], doing: str, limit: float, *, after_failure: Callable[[], object]) -> T:
    """Call until it succeeds, for about `limit` seconds while the error may pass. Raises `ServiceBusFailure`.

    Returns the value of the call that succeeds. `doing` says what fails, and where. An error of Oncebus is raised as it
    is. If an attempt does not end, it is abandoned: it may go on beside the next one, so `call` must not collect
    results in a place that attempts share. `after_failure` is called after every failed attempt.
    """
    waits = pauses(limit)
    has_failed = False
    while True:
        try:
            return _bounded(call)
        except OncebusError:
            raise
        except Exception as error:
            after_failure()
            pause = next(waits, None) if may_pass(error) else None
            if pause is None:
                raise failure(error, doing) from None
            if not has_failed:
                log_retry(error, doing, limit)
                has_failed = True
            time.sleep(pause)


def pauses(
    limit: float, chance: random.Random | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[float]:
    """Yield growing pauses in seconds, until `limit` seconds have passed since the first.

    They have some chance in them, so that tasks do not come back together.
    """
    drawn, pause, end = chance or random.Random(), _FIRST_PAUSE, clock() + limit
    while (left := end - clock()) > 0:
        yield min(left, pause * drawn.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _bounded(call: Callable[[], T]) -> T:
    """Call in a thread of its own. Raises `OperationTimeoutError` if it does not end in time.

    The client waits for ever if a broker, or something in between, accepts a connection and does not answer.
    """
    values: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            values.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="servicebus-attempt", daemon=True)
    thread.start()
    thread.join(LONGEST_ATTEMPT)
    if thread.is_alive():
        raise OperationTimeoutError(message="The broker does not answer.")
    if errors:
        raise errors[0]
    return values[0]
