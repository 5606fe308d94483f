"""Windows of detection that pass in real time: the shortest there is takes 20 seconds."""

from __future__ import annotations

import time
from dataclasses import replace

from oncebus.durations import MINUTE, SECOND
from serve.stage import Stage

SHORT, LONG = 20 * SECOND, 10 * MINUTE
MOMENT_SECONDS = 3.0

QUEUES = {
    # The window when the first message came, the one in force since, and whether its id is forgotten after 20 seconds.
    "short": (SHORT, SHORT, True),
    "long": (LONG, LONG, False),
    "shortened": (LONG, SHORT, True),
    "lengthened": (SHORT, LONG, True),
}


class Windows:
    """A queue of each kind, to which the same id is sent at the beginning, a moment later, and a short window later."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        for name, (first, _, _) in QUEUES.items():
            described = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": _written(first)}
            assert stage.client.put(name, described)[0] == 201
        self._send("first")
        self._begun = time.monotonic()
        for name, (_, later, _) in QUEUES.items():
            # Not over HTTP: that would tell how many messages there are, and wait for Spark, which is not there yet.
            changed = replace(stage.broker.catalogue.queue(name), duplicate_detection_history_time_window=later)
            stage.change(lambda catalogue, now, changed=changed: catalogue.updated(changed, now))  # type: ignore[misc]

    def send_within(self) -> None:
        """Some seconds later: what is dropped then must not let the windows begin anew."""
        self._wait(MOMENT_SECONDS)
        self._send("within")

    def send_after(self) -> None:
        """A short window after the first, which is less than one after the second."""
        self._wait(SHORT / SECOND)
        self._send("after")

    def _send(self, body: str) -> None:
        for name in QUEUES:
            assert self._stage.client.send(name, "a", body) == 201

    def _wait(self, seconds: float) -> None:
        time.sleep(max(0.0, self._begun + seconds - time.monotonic()))


def _written(window: int) -> str:
    return f"PT{window // SECOND}S"
