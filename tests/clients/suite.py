"""Scenarios in another language: built once, run in one process, and each a test of its own here."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from .served import Served

BUILT = Path(__file__).parents[2] / "build"
PATIENCE = 150.0
Results = Iterable[tuple[str, str | None]]
"""The name of each scenario with its failure, if any. An unknown name fails all scenarios."""


@contextmanager
def made(name: str, sources: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield an empty folder below `build` to fill from the sources, or a full one if they have not changed since."""
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()
    folder = BUILT / name
    mark = folder.with_suffix(".made")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_made = mark.exists() and mark.read_text() == digest
        if not is_made:
            mark.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield folder, is_made
        mark.write_text(digest)


def build(folder: Path, *words: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words[:3])} failed:\n{done.stdout}\n{done.stderr}"


def variables(served: Served, entities: dict[str, list[str]]) -> dict[str, str]:
    """Return the environment variables for scenarios."""
    return {
        **os.environ,
        "ENTITIES": json.dumps(entities),
        "SERVICEBUS_CONNECTION_STRING": served.string(),
        "ONLY_SENDS": served.string(served.only_sends),
        "ONLY_LISTENS": served.string(served.only_listens),
        "EXPIRED": served.token_string(-60),
    }


def selected(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[str]:
    """Return the scenarios of a parametrized test that are selected to run."""
    tests = [each for each in request.session.items if isinstance(each, pytest.Function)]
    return [str(each.callspec.params["scenario"]) for each in tests if each.function is test]


class Suite:
    """Running scenarios."""

    def __init__(self, names: Sequence[str], results: Results, log: Path) -> None:
        self._log = log
        self._results: dict[str, Future[str | None]] = {name: Future() for name in names}
        threading.Thread(target=self._read, args=(results,), name="suite", daemon=True).start()

    def wait_for(self, name: str) -> None:
        """Wait for a scenario, which must succeed."""
        failure = self._results[name].result(PATIENCE)
        assert failure is None, f"{name}:\n{failure}"

    def _read(self, results: Results) -> None:
        for name, failure in results:
            if name in self._results:
                self._results[name].set_result(failure)
            elif failure is not None:
                self._end(failure)
        self._end(f"the process ended without it:\n{self._log.read_text()[-5000:]}")

    def _end(self, failure: str) -> None:
        for each in self._results.values():
            if not each.done():
                each.set_result(failure)


@contextmanager
def running(
    words: Sequence[str],
    environment: Mapping[str, str],
    names: Sequence[str],
    results: Callable[[Iterable[str]], Results],
    log: Path,
) -> Iterator[Suite]:
    """Run a process for the block. `results` reads the lines of its output."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with process:
            assert process.stdout is not None
            try:
                yield Suite(names, results(process.stdout), log)
            finally:
                process.kill()
