"""Runs S3, as moto serves it, as a process: prints its port, and ends when its standard input ends."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class OneAtATime:
    """Passes requests on one at a time, each completely.

    Moto checks whether an object exists and then writes it, in several threads at once, and it accepts a truncated
    body. S3 does neither.
    """

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        is_chunked = bool(environ.get("wsgi.input_terminated"))
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read() if is_chunked else environ["wsgi.input"].read(length)
        if len(body) < length:
            start_response("400 Bad Request", [])
            return []
        environ["wsgi.input"] = BytesIO(body)
        with self._lock:
            return list(self._application(environ, start_response))


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
