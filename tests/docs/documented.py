"""A broker without Spark at the addresses of a real one, with TLS and without, and somebody who reads its docs."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.in_process import running_broker
from cli.served_broker import Served
from clients import javascript
from in_thread import in_thread
from oncebus.access import KeyFile, connection_string
from oncebus.broker.clock import wall_time
from oncebus.http import listen, server
from oncebus.serve.addresses import write_url
from oncebus.serve.app import make_app
from oncebus.serve.certificate import CERTIFICATE, own_certificate
from oncebus.servicebus import make_server

TSCONFIG = Path(__file__).parents[2] / "examples" / "typescript" / "tsconfig.json"
_PORT = "import azure.servicebus._pyamqp._connection as found\nfound.SECURE_PORT"


@dataclass
class Reader:
    """Does what a page says, in a folder of its own."""

    served: Served
    folder: Path
    ports: dict[str, int]

    def told(self, *, tls: bool) -> dict[str, str]:
        """What the page has asked to be exported."""
        root = KeyFile(self.served.data / "keys.json").rules()[0]
        messages = connection_string("localhost", self.ports["amqps" if tls else "amqp"], root, emulator=not tls)
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("ONCEBUS_")}
        return cleared | {
            "ONCEBUS_DATA": str(self.served.data),
            "SERVICEBUS_CONNECTION_STRING": messages,
            "ADMINISTRATION_CONNECTION_STRING": connection_string("localhost", self.ports["https"], root, False),
            "NODE_EXTRA_CA_CERTS": str(self.served.data / CERTIFICATE),
        }

    def run(self, language: str, code: str) -> str:
        """Run a program; what it says."""
        if language == "python":
            return self._python(code)
        name = {"javascript": "page.mjs", "typescript": "page.ts"}[language]
        told = self.told(tls=True)
        with javascript.workplace(javascript.HERE / "package.json", TSCONFIG) as folder:
            (folder / name).write_text(code)
            if language == "typescript":
                javascript.run(folder, ["node", "node_modules/typescript/bin/tsc"], told)
                name = "compiled/page.js"
            return javascript.run(folder, ["node", name], told)

    def _python(self, code: str) -> str:
        """Over TLS, if the page trusts a certificate: then the client goes to one port, made to be ours."""
        with_tls = "connection_verify=certificate" in code
        if with_tls:
            code = f"{_PORT} = {self.ports['amqps']}\n{code}"
        (self.folder / "page.py").write_text(code)
        return javascript.run(self.folder, [sys.executable, "-W", "error", "page.py"], self.told(tls=with_tls))


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """A broker at free ports, until the block ends."""
    data = folder / "oncebus-data"

    @asynccontextmanager
    async def run() -> AsyncIterator[Reader]:
        loop = asyncio.get_running_loop()
        keys = KeyFile(data / "keys.json")
        keys.create()
        own = own_certificate(data, "localhost", wall_time())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(own.certificate, own.key)
        sockets = {name: listen("127.0.0.1", 0) for name in ("https", "amqp", "amqps")}
        ports = {name: int(each.getsockname()[1]) for name, each in sockets.items()}
        async with running_broker(data) as broker:
            http = server(make_app(broker, namespace_rules=keys.rules, keys=keys), sockets["https"], own)
            await http.start()
            amqp = make_server(broker, namespace_rules=keys.rules)
            await amqp.start(sockets["amqp"])
            await amqp.start(sockets["amqps"], context)
            url = f"https://127.0.0.1:{ports['https']}"
            write_url(data, url)
            yield Reader(Served(data, url, broker, loop), folder, ports)
            await asyncio.gather(http.stop(), amqp.stop())

    with in_thread(run) as service:
        yield service
