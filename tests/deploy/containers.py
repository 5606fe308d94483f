"""Builds the image and runs containers of it with buildah, which needs no Docker engine.

A container has a file system and a user of its own, and the network and processes of this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS = ("buildah", "mmdebstrap")
LIMIT = 180.0


def missing() -> str | None:
    """Return why no image can be built here; None if it can be."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"no image is built: {' and '.join(lacking)} not found"
    return None if os.getuid() == 0 else "no image is built: buildah's chroot isolation is tested as root only"


def build(name: str) -> None:
    """Build the image with the script of `make image`."""
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "tools" / "image", name], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def buildah(*words: str | Path) -> str:
    return subprocess.run(["buildah", *words], capture_output=True, text=True, check=True).stdout.strip()


def image_config(name: str) -> Any:
    """Return the configuration of an image, as engines see it."""
    return json.loads(buildah("inspect", "--type", "image", name))["Docker"]["config"]


class Container:
    """A running container. Its output is in `log`."""

    def __init__(
        self,
        image: str,
        log: Path,
        mounts: Mapping[Path, str],
        environment: Mapping[str, str],
        *arguments: str,
    ) -> None:
        self.image = image
        self.log = log
        self.id = buildah("from", "--pull-never", image)
        words = ["buildah", "run", "--isolation", "chroot", "--hostname", "localhost"]
        for source, target in mounts.items():
            words += ["--volume", f"{source}:{target}"]
        for name, value in environment.items():
            words += ["--env", f"{name}={value}"]
        words += [self.id, "--", *image_config(image)["Entrypoint"], *arguments]
        self.started = time.monotonic()
        with log.open("w") as output:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def run(self, *words: str) -> str:
        """Run another command in the container's file system, as its user."""
        return buildah("run", "--isolation", "chroot", self.id, "--", *words)

    def wait_for(self, text: str) -> float:
        """Wait for a text in the log. Return the seconds since the start."""
        deadline = time.monotonic() + LIMIT
        while text not in self.log.read_text():
            said = self.log.read_text()[-3000:]
            assert self.process.poll() is None, f"the container ended:\n{said}"
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n{said}"
            time.sleep(0.1)
        return time.monotonic() - self.started

    def processes(self) -> list[int]:
        """Return the processes that the entry point has started, and itself: all below buildah that are not buildah."""
        found, ahead = [], [self.process.pid]
        while ahead:
            below = _children(ahead.pop())
            found += [pid for pid in below if "buildah" not in _command(pid)]
            ahead += below
        return found

    def stop(self) -> int:
        """Ask the entry point to end, as an engine does, and return its exit code."""
        for pid in self.processes()[:1]:
            os.kill(pid, signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.remove()

    def remove(self) -> None:
        """Kill everything that still runs, and delete the container."""
        for pid in [*self.processes(), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        subprocess.run(["buildah", "rm", self.id], capture_output=True, check=False)


@contextmanager
def running(
    image: str, log: Path, mounts: Mapping[Path, str], environment: Mapping[str, str], *arguments: str
) -> Iterator[Container]:
    """Run a container for a block, and stop it with the signal that engines send."""
    container = Container(image, log, mounts, environment, *arguments)
    try:
        yield container
        assert container.stop() == 0, log.read_text()[-3000:]
    finally:
        container.remove()


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process: buildah starts its own from any of them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(each) for each in (thread / "children").read_text().split()]
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
