"""Runs Node with the official client for JavaScript, installed from npm once per virtual environment."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from oncebus.model.access import connection_string
from tests import npm

from .served import Served

HERE = Path(__file__).parent / "javascript"
INSTALLED = Path(sys.prefix) / "javascript"
"""Lies in the virtual environment, so git ignores it and it is deleted with the environment."""

PATIENCE = 120.0
_FRAMES_SHOWN = 100
_AT_ONCE = threading.Semaphore(3)
"""More at the same time would delay one another for longer than the shortest lock."""


def modules() -> Path:
    """Return the folder `node_modules` with the packages of package.json, installing them if needed."""
    return npm.installed(HERE, INSTALLED)


@contextmanager
def workplace(*files: Path) -> Iterator[Path]:
    """Yield a folder with copies of these files, in which Node finds the installed modules."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "node_modules").symlink_to(modules())
        for file in files:
            shutil.copy(file, folder)
        yield folder


def environment(served: Served, port: int | None = None, **more: str) -> dict[str, str]:
    """Return the environment variables for scenarios and samples."""
    return {
        **os.environ,
        "SERVICEBUS_CONNECTION_STRING": served.string(port=port),
        "NODE_EXTRA_CA_CERTS": str(served.certificate),
        **more,
    }


def run(folder: Path, words: list[str], environment: dict[str, str]) -> str:
    """Run a command, which must succeed, and return its output."""
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_scenarios(name: str, served: Served, entities: dict[str, list[str]], **more: str) -> str:
    """Run a file of scenarios with Node's own test runner."""
    with workplace(HERE / name, HERE / "stage.mjs") as folder:
        variables = {
            "ENTITIES": json.dumps(entities),
            "ONLY_SENDS": served.string(served.only_sends),
            "ONLY_LISTENS": served.string(served.only_listens),
            **more,
        }
        with _AT_ONCE:
            return run(folder, ["node", "--test", name], environment(served, None, **variables))


def play(name: str, served: Served, *, over_websockets: bool = False, **kinds: int) -> dict[str, list[str]]:
    """Run a file of scenarios with the given number of entities of each kind, and return the entities.

    WebSockets of this client always have TLS, which a relay terminates.
    """
    named = {kind.replace("_", "-"): count for kind, count in kinds.items()}
    entities = {kind: served.pool.take(kind, count) for kind, count in named.items()}
    https = connection_string("localhost", served.https_port, served.root, emulator=False)
    more = {"WEBSOCKETS": "yes", "SERVICEBUS_CONNECTION_STRING": https} if over_websockets else {}
    print(run_scenarios(name, served, entities, ADMINISTRATION=https, **more))
    return entities


class Node:
    """A running program that reads commands and writes results line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def expect(self, line: str) -> None:
        """Wait for a line."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(max(0.0, deadline - time.monotonic())), f"waited for the line: {line}"
            said = self._process.stdout.readline().rstrip("\n")
        assert said == line, said or self._process.wait(PATIENCE)


@contextmanager
def started(name: str, served: Served, port: int, queue: str) -> Iterator[Node]:
    """Run a program for the block. It must succeed after its input ends. If it does not, print its last AMQP frames."""
    with workplace(HERE / name) as folder, (folder / "frames").open("w+") as frames:
        process = subprocess.Popen(
            ["node", name],
            cwd=folder,
            env=environment(served, port, QUEUE=queue, DEBUG="rhea:frames"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=frames,
            text=True,
        )
        with process:
            try:
                yield Node(process)
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(PATIENCE) == 0
            except BaseException:
                frames.seek(0)
                print("".join(frames.readlines()[-_FRAMES_SHOWN:]))
                raise
            finally:
                process.kill()
