"""A sender with a Send-only key that sends more than the pipeline can process."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.programs.serve.programs import until

from .gateways import Gateway, running_gateway
from .victims import victim

CONNECTIONS, BATCH = 6, 500


class Noise:
    """Connections that send one batch after another to the noisy queue. `statuses` are the answers they got."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._over = threading.Event()
        self.statuses: list[int] = []
        self._threads = [threading.Thread(target=self._send) for _ in range(CONNECTIONS)]

    def __enter__(self) -> Noise:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        messages: list[tuple[str, dict[str, object]]] = [("x" * 50, {})] * BATCH
        while not self._over.is_set():
            self.statuses.append(self._gateway.http.send_batch("noisy", messages))


def test_a_quiet_queue_keeps_working_and_the_noisy_one_has_to_wait(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, victim(gateway, "http") as somebody:
        with Noise(gateway) as noise:
            until(lambda: len(noise.statuses) > 2 * CONNECTIONS, "noise", limit=120)
            # However fast this machine is: while the pipeline stands still, it cannot keep up.
            gateway.judge.send_signal(signal.SIGSTOP)
            until(lambda: gateway.http.metric("entity_waiting_sends", entity="noisy") > 0, "sends wait", limit=120)
            gateway.judge.send_signal(signal.SIGCONT)
            somebody.goes_on()
        assert {*noise.statuses} <= {201, 503}
