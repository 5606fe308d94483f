"""Floods of small AMQP frames, each in its own process, and a probe of the gateway's health."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from oncebus.model.access import AuthorizationRule
from tests.programs.serve.programs import ROOT

from .gateways import Gateway
from .victim import PATIENCE


@contextmanager
def flooded(gateway: Gateway, kind: str, count: int, rule: AuthorizationRule | None = None) -> Iterator[None]:
    """Let `count` connections send frames of a kind during the block, as strangers or with the key of a rule."""
    given = {
        "kind": kind,
        "count": count,
        "port": gateway.amqp_port,
        "rule": None if rule is None else (rule.name, rule.primary_key),
        "certificate": None if gateway.certificate is None else str(gateway.certificate),
    }
    words = [sys.executable, "-m", "tests.abuse.flood", json.dumps(given)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flooding:
        assert flooding.stdout is not None
        try:
            assert flooding.stdout.readline() == '"there"\n', f"{count} connections did not connect"
            yield
            assert flooding.poll() is None, "the flood has ended"
        finally:
            flooding.kill()


class Probe:
    """The seconds that each request for `/health/live` took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def slowest(self) -> float:
        return max(self.seconds, default=0.0)


@contextmanager
def probing(gateway: Gateway) -> Iterator[Probe]:
    """Ask for `/health/live` again and again during the block, each time on a new connection."""
    found, ended = Probe(), threading.Event()
    context = ssl.create_default_context(cafile=str(gateway.certificate)) if gateway.certificate else None

    def probe() -> None:
        while not ended.is_set():
            began = time.monotonic()
            with urllib.request.urlopen(f"{gateway.url}/health/live", timeout=PATIENCE, context=context) as response:
                assert response.status == 200
            found.seconds.append(time.monotonic() - began)
            ended.wait(0.05)

    probing = threading.Thread(target=probe)
    probing.start()
    try:
        yield found
    finally:
        ended.set()
        probing.join()
