"""Repeats calls to the broker: for how long one attempt may take, and how long to wait between two."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

from oncebus.connector.endpoints import Access
from oncebus.connector.failures import NO_ANSWER, failure, log_retry, may_pass
from oncebus.connector.options import Entity
from oncebus.values.errors import OncebusError

T = TypeVar("T")
LONGEST_ATTEMPT = 75.0
"""In seconds: longer than the client's own limit, which does not apply while it opens a connection."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


def retry(
    call: Callable[[], T],
    doing: Callable[[], str],
    limit: float,
    *,
    after_failure: Callable[[], object] = lambda: None,
    passes: Callable[[Exception], bool] = may_pass,
) -> T:
    """Call until it succeeds, for about `limit` seconds while the error passes. Raises `ServiceBusFailure`.

    Returns the value of the call that succeeds. `doing` says what fails, and where; it is asked after a failure. An
    error of Oncebus is raised as it is. If an attempt does not end, it is abandoned: it may go on beside the next one,
    so `call` must not collect results in a place that attempts share. `after_failure` is called after every failed
    attempt.
    """
    waits = pauses(limit)
    has_failed = False
    while True:
        try:
            return call_in_time(call)
        except Exception as error:
            after_failure()
            pause = next(waits, None) if passes(error) else None
            if pause is None and isinstance(error, OncebusError):
                raise
            if pause is None:
                raise failure(error, doing()) from None
            if not has_failed:
                log_retry(error, doing(), limit)
                has_failed = True
            time.sleep(pause)


def resolve_access(access: Access, entity: Entity) -> Access:
    """Return an access that holds the connection string itself, if there is one. Raises an error of Oncebus."""
    return retry(lambda: access.resolve(entity.name), lambda: f"Reading the connection string for {entity}", 0)


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


def call_in_time(call: Callable[[], T]) -> T:
    """Return the value of a call. Raises `OperationTimeoutError` if it does not end in time.

    The client waits for ever if a broker, or something in between, accepts a connection and does not answer.
    """
    future = in_thread(call)
    if not wait([future], LONGEST_ATTEMPT).done:
        raise OperationTimeoutError(message=NO_ANSWER)
    return future.result()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Start a call in a thread of its own. If it hangs, it does not keep the process from ending."""
    future: Future[T] = Future()
    # Nobody can cancel it from now on.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)

    threading.Thread(target=run, name="servicebus-attempt", daemon=True).start()
    return future
