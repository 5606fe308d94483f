"""Runs object stores for tests: servers with the protocols of S3 and Azure Blob Storage, on free ports."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import npm
from tests.object_stores import ACCOUNT, KEY, Server

HERE = Path(__file__).parent


@contextmanager
def server(kind: str, folder: Path) -> Iterator[Server]:
    """Run a server for the block. Its logs go to the folder."""
    command = [sys.executable, str(HERE / "s3_server.py")]
    if kind == "azure":
        program = npm.installed(HERE / "azurite", Path(sys.prefix) / "azurite") / "azurite/dist/src/blob/main.js"
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        command = ["node", str(program), *options, "--blobHost", "127.0.0.1", "--blobPort", "0"]
    with (
        (folder / f"{kind}.log").open("wb") as errors,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            running = Server(kind, _port(process))
            _make_bucket(running)
            yield running
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"^(\d+)$|listens on http://127.0.0.1:(\d+)", line):
            return int(match[1] or match[2])
    raise AssertionError(f"{process.args!r} ended with {process.wait()}")


def _make_bucket(running: Server) -> None:
    address, headers = f"http://127.0.0.1:{running.port}/ledgers", {}
    if running.kind == "azure":
        address = f"http://127.0.0.1:{running.port}/{ACCOUNT}/ledgers?restype=container"
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = "PUT" + "\n" * 12 + named + f"/{ACCOUNT}/{ACCOUNT}/ledgers\nrestype:container"
        signature = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(address, headers=headers | {"Content-Length": "0"}, method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status in (200, 201)
