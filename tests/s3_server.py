"""Amazon's S3 as moto serves it, as a process of its own: prints its port, and ends when its input does."""

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
    """Hands on requests one after the other, as a whole.

    Moto looks whether an object is there and then writes it, in several threads at once, and takes a body that was cut
    off for a whole one. S3 does neither.
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
