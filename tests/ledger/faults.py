"""Relays requests to a real object store, counts them, and makes puts fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fault(Enum):
    """The ways in which a put fails."""

    CUT = "the store gets half of it, then both sides lose their connection"
    STALL = "the store gets half of it, then nothing more happens"
    LOST_ANSWER = "the store takes it, then the client loses its connection"
    SLOW_ANSWER = "the store takes it, and the client hears nothing"
    UNAVAILABLE = "the store does not hear of it, and the client gets status 503"
    UNCONDITIONAL = "the store does not hear of its condition"


class Relay(ThreadingHTTPServer):
    """Passes each request on to a local port, in a new connection."""

    daemon_threads = True

    def __init__(self, to: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = to
        self.ended = threading.Event()
        self.spoilt = 0
        self.seen: list[str] = []
        """The method and path of each request."""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def spoil(self, fault: Fault, times: int) -> None:
        """Make the next `times` puts fail in this way."""
        with self._lock:
            self._faults = [fault] * times
            self.spoilt = 0

    def next_fault(self) -> Fault | None:
        with self._lock:
            if not self._faults:
                return None
            self.spoilt += 1
            return self._faults.pop()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hung up."""


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(f"{self.command} {self.path}")
        fault = self.server.next_fault() if self.command == "PUT" else None
        if fault is Fault.UNAVAILABLE:
            self.wfile.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        if fault is Fault.UNCONDITIONAL:
            del self.headers["If-None-Match"]
        self.headers["Connection"] = "close"
        head = f"{self.requestline}\r\n{self.headers}".replace("\r\n", "\n").replace("\n", "\r\n").encode()
        with socket.create_connection(("127.0.0.1", self.server.to)) as store:
            if fault in (Fault.CUT, Fault.STALL):
                store.sendall(head + body[: len(body) // 2])
                if fault is Fault.STALL:
                    self.server.ended.wait()
                return
            store.sendall(head + body)
            answer = b"".join(iter(lambda: store.recv(1 << 16), b""))
        if fault is Fault.SLOW_ANSWER:
            self.server.ended.wait()
        elif fault is not Fault.LOST_ANSWER:
            self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


@contextmanager
def relay(to: int) -> Iterator[Relay]:
    """Run a relay for the block."""
    with Relay(to) as running:
        thread = threading.Thread(target=running.serve_forever, name="relay", daemon=True)
        thread.start()
        try:
            yield running
        finally:
            running.ended.set()
            running.shutdown()
            thread.join()
