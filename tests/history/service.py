"""The service under test: `oncebus serve`, on a small disk, with a clock that can be set, behind proxies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from oncebus.model.access import KeyFile, connection_string
from tests.programs.serve.clients import Client, Running, all_end, everything_below, kill_everything
from tests.programs.serve.disk import SmallDisk, small_disk
from tests.programs.serve.wrong_clock import WrongClock

from .amqp_client import AmqpClient
from .entities import described
from .http_client import HttpClient
from .proxy import Proxy, proxy

_SITE = Path(__file__).parent / "site"
_IDLE_SECONDS = 5.0
"""The idle time-out of AMQP. With the usual one, vanished clients would outlive the run."""


class Service:
    """A service that can be killed and restarted. Clients reach it at the same ports, those of the proxies."""

    running: Running
    amqp_proxy: Proxy
    http_proxy: Proxy

    def __init__(self, folder: Path, disk: SmallDisk) -> None:
        self._folder, self.disk = folder, disk
        self.clock = WrongClock(folder / "clock")
        self._starts = 0
        (folder / "entities.json").write_text(json.dumps(described()))
        self._start()

    def _start(self) -> None:
        name = f"service-{self._starts}"
        self._starts += 1
        places: list[str | Path] = ["--data", self.disk.path / "data", "--entities", self._folder / "entities.json"]
        words = ["serve", "--http-port", "0", "--amqp-port", "0", "--master", "local[1]", *places]
        words.append("--print-connection-string")
        paths = os.pathsep.join(filter(None, [str(_SITE), os.environ.get("PYTHONPATH")]))
        environment = {
            "PYTHONPATH": paths,
            "HISTORY_CLOCK": str(self._folder / "clock"),
            "HISTORY_IDLE_SECONDS": str(_IDLE_SECONDS),
        }
        self.running = Running(self._folder, name, words, within=self.disk.within, **environment)

    def ports(self) -> tuple[int, int]:
        """Wait until the service is ready. Return its ports for AMQP and HTTP."""
        url = self.running.ready()
        found = re.match(r"Endpoint=sb://localhost:(\d+);", self.running.out.read_text())
        assert found is not None, self.running.out.read_text()
        return int(found[1]), int(url.rpartition(":")[2])

    def restart(self) -> None:
        """Kill everything, as a crash of the machine would, and start it again."""
        kill_everything(self.running)
        self._start()
        self.amqp_proxy.target, self.http_proxy.target = self.ports()

    def proxy_for(self, size: float) -> Proxy:
        """Return one of the proxies. `size`, from 0 to 1, selects it; most values select AMQP."""
        return self.amqp_proxy if size < 0.6 else self.http_proxy

    # Clients

    def client_of_amqp(self) -> AmqpClient:
        return AmqpClient(self._string())

    def client_of_http(self) -> HttpClient:
        url = f"http://127.0.0.1:{self.http_proxy.port}"
        return HttpClient(Client(url, self.disk.seen / "data"), self._string())

    @property
    def http(self) -> HttpClient:
        """A client that bypasses the proxy, for requests that are not part of the history."""
        url = f"http://127.0.0.1:{self.http_proxy.target}"
        return HttpClient(Client(url, self.disk.seen / "data"), self._string())

    def _string(self) -> str:
        root = KeyFile(self.disk.seen / "data" / "keys.json").rules()[0]
        return connection_string("localhost", self.amqp_proxy.port, root, emulator=True)

    def output(self) -> str:
        """Return the standard error of all starts of the service."""
        return "".join(path.read_text() for path in sorted(self._folder.glob("service-*.err")))


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """Yield a service. After the block, no process and no mount of it is left."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk"))
        service = Service(folder, disk)
        try:
            amqp, http = service.ports()
            service.amqp_proxy = stack.enter_context(proxy(amqp, is_amqp=True))
            service.http_proxy = stack.enter_context(proxy(http, is_amqp=False))
            yield service
        finally:
            running = service.running
            below = everything_below(running.process.pid) if running.process.poll() is None else []
            running.clean_up()
            all_end(below, "what was started ends too")
