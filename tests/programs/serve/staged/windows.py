"""Detection windows that pass in real time. The shortest allowed window is 20 seconds."""

from __future__ import annotations

import time
from dataclasses import replace

from oncebus.values.durations import MINUTE, SECOND
from tests.programs.serve.stage import Stage

SHORT, LONG = 20 * SECOND, 10 * MINUTE
MOMENT_SECONDS = 3.0

QUEUES = {
    # The window when the first message is accepted, the window after that, and whether 20 seconds later its id is
    # forgotten.
    "short": (SHORT, SHORT, True),
    "long": (LONG, LONG, False),
    "shortened": (LONG, SHORT, True),
    "lengthened": (SHORT, LONG, True),
}


class Windows:
    """The queues. Each gets the same id three times: at the start, a moment later, and 20 seconds later."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        for name, (first, _, _) in QUEUES.items():
            described = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": _written(first)}
            assert stage.client.put(name, described)[0] == 201
        self._send("first")
        self._begun = time.monotonic()
        for name, (_, later, _) in QUEUES.items():
            # Not over HTTP, whose answer includes message counts and so waits for Spark, which does not run yet.
            changed = replace(stage.broker.catalogue.queue(name), duplicate_detection_history_time_window=later)
            stage.change(lambda catalogue, now, changed=changed: catalogue.update(changed, now))  # type: ignore[misc]

    def send_within(self) -> None:
        """Send the id some seconds later. This duplicate must not restart the window."""
        self._wait(MOMENT_SECONDS)
        self._send("within")

    def send_after(self) -> None:
        """Send the id one short window after the first message, which is less than one window after the second."""
        self._wait(SHORT / SECOND)
        self._send("after")

    def _send(self, body: str) -> None:
        for name in QUEUES:
            assert self._stage.client.send(name, "a", body) == 201

    def _wait(self, seconds: float) -> None:
        time.sleep(max(0.0, self._begun + seconds - time.monotonic()))


def _written(window: int) -> str:
    return f"PT{window // SECOND}S"
