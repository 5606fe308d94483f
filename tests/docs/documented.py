"""A broker without Spark, over HTTP and AMQP with and without TLS, and a reader who follows the docs against it."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from oncebus.broker.clock import wall_time
from oncebus.model.access import KeyFile, connection_string
from oncebus.programs.serve.addresses import write_addresses
from oncebus.programs.serve.app import make_app
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.protocols.http import listen, server
from oncebus.protocols.servicebus import make_server
from tests.broker.in_process import running_broker
from tests.clients import java, javascript
from tests.in_thread import in_thread
from tests.programs.cli.served_broker import Served

TSCONFIG = Path(__file__).parents[2] / "examples" / "typescript" / "tsconfig.json"
_PORT = "import azure.servicebus._pyamqp._connection as found\nfound.SECURE_PORT"


@dataclass
class Reader:
    """Runs the samples of a page in a folder, as a reader would."""

    served: Served
    folder: Path
    ports: dict[str, int]

    def environment(self, *, tls: bool) -> dict[str, str]:
        """Return the environment with the variables that the page asks the reader to export."""
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
        """Run a program, and return its output."""
        if language == "python":
            return self._python(code)
        if language == "java":
            return self._java(code)
        name = {"javascript": "page.mjs", "typescript": "page.ts"}[language]
        environment = self.environment(tls=True)
        with javascript.workplace(javascript.HERE / "package.json", TSCONFIG) as folder:
            (folder / name).write_text(code)
            if language == "typescript":
                javascript.run(folder, ["node", "node_modules/typescript/bin/tsc"], environment)
                name = "compiled/page.js"
            return javascript.run(folder, ["node", name], environment)

    def _java(self, code: str) -> str:
        """Run the samples of a page as one program, with the broker's own port for administration."""
        options = java.trust_store(self.served.data / CERTIFICATE, self.folder)
        code = java.program(code).replace("setPort(5300)", f"setPort({self.ports['https']})")
        return java.run_file(code, self.environment(tls=True), options)

    def _python(self, code: str) -> str:
        """Run a Python program, over TLS if it trusts a certificate.

        With TLS the client always connects to port 5671, so the program is patched to use the broker's port.
        """
        with_tls = "connection_verify=certificate" in code
        if with_tls:
            code = f"{_PORT} = {self.ports['amqps']}\n{code}"
        (self.folder / "page.py").write_text(code)
        command = [sys.executable, "-W", "error", "page.py"]
        return javascript.run(self.folder, command, self.environment(tls=with_tls))


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """Run a broker at free ports for a block, and yield a reader."""
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
            write_addresses(data, url)
            yield Reader(Served(data, url, broker, loop), folder, ports)
            await asyncio.gather(http.stop(), amqp.stop())

    with in_thread(run) as service:
        yield service
