"""Real brokers with TLS and self-signed certificates, and how administration clients reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from oncebus.broker.clock import wall_time
from oncebus.model.access import KeyFile, connection_string, make_token
from oncebus.model.entities import Tier
from oncebus.programs.serve.certificate import CERTIFICATE
from oncebus.values.durations import HOUR
from tests.programs.serve.clients import Client, Running
from tests.programs.serve.programs import until
from tests.programs.serve.services import service

TLS = ("--tls", "--amqps-port", "0")


class Served:
    """A broker as clients see it."""

    def __init__(self, url: str, data: Path) -> None:
        self.url, self.data, self.certificate = url, data, data / CERTIFICATE
        self.http = Client(url, data)
        self.root = KeyFile(data / "keys.json").rules()[0]

    @property
    def port(self) -> int:
        found = urlsplit(self.url).port
        assert found is not None
        return found

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    @property
    def string(self) -> str:
        """Return the connection string for administration, with the HTTP port."""
        return connection_string("localhost", self.port, self.root, emulator=False)

    @property
    def token(self) -> str:
        """Return a token for the namespace that is valid for the duration of a test."""
        return make_token(f"https://{self.host}/", self.root.name, self.root.primary_key, wall_time() + HOUR)


@contextmanager
def whole_broker(folder: Path) -> Iterator[Served]:
    """Run `oncebus serve --tls`, with Spark, in the Standard tier."""
    with service(folder, "serve", options=TLS) as running:
        yield Served(running.ready(), folder / "data")


@contextmanager
def gateway_alone(folder: Path, tier: Tier) -> Iterator[Served]:
    """Run `oncebus gateway --tls` in a tier. Without a pipeline, messages stay in the inbox; management works."""
    data = folder / "data"
    ports = ("--http-port", "0", "--amqp-port", "0")
    running = Running(folder, "gateway", ["gateway", "--data", data, "--tier", str(tier), *ports, *TLS])
    try:
        until((data / "address").exists, f"the gateway listens: {running.err.read_text()}")
        yield Served((data / "address").read_text().strip(), data)
        assert running.stop() == 0, running.err.read_text()
    finally:
        running.clean_up()
