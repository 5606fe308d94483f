"""A server with TLS stops whatever its clients do."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from oncebus.broker.clock import wall_time
from oncebus.programs.serve.certificate import CERTIFICATE, own_certificate
from oncebus.protocols.http import listen, server
from tests.protocols.http.http_front import running_front


def test_the_server_does_not_wait_for_a_client_that_ignores_the_end_of_tls(tmp_path: Path) -> None:
    async def run() -> None:
        tls = own_certificate(tmp_path, "localhost", wall_time())
        async with running_front(tmp_path / "data", pipeline=False) as front:
            running = server(front.app, listen("127.0.0.1", 0), tls)
            await running.start()
            # With a limit of one byte, the client does not read the end of TLS, and so does not answer it.
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", running.port, ssl=ssl.create_default_context(cafile=str(tmp_path / CERTIFICATE)), limit=1
            )
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readexactly(12) == b"HTTP/1.1 200"
            assert len(running.server_state.connections) == 1
            await running.stop()
            assert not running.server_state.connections
            writer.transport.abort()

    asyncio.run(run())
