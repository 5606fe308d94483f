"""Creates the class archive that speeds up Spark's start: runs a broker once, and Java saves the classes it loaded."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from oncebus.pipeline.jvm import ClassArchive, NoArchive, Recording, default_cache
from oncebus.programs.serve.checks import check_java
from oncebus.programs.serve.service import command, environment
from oncebus.values.settings import Settings

_READY = "Oncebus is ready"
_READY_SECONDS = 300.0
_SAVING_SECONDS = 300.0
_ENDING_SECONDS = 10.0
_POLL_SECONDS = 0.1


def make_archive(cache: Path | None, say: Callable[[str], object]) -> None:
    """Create the archive if it does not exist, and say so, line by line. Raises `NoArchive`."""
    check_java()
    archive = ClassArchive(cache.absolute() if cache is not None else default_cache())
    if archive.exists():
        say(f"Spark's classes are saved already: {archive.path}")
        return
    say("Saving Spark's classes takes up to a minute and 160 MB, once.")
    # Fails here, before a broker runs, if the archive cannot be stored.
    Recording(archive)
    with tempfile.TemporaryDirectory(prefix="oncebus-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        settings = Settings(data=folder / "data", http_port=0, amqp_port=0, master="local[2]", cache=cache)
        gateway = stack.enter_context(_Part(folder, settings, "gateway"))
        pipeline = stack.enter_context(_Part(folder, settings, "pipeline", "--record-classes"))
        deadline = time.monotonic() + _READY_SECONDS
        while _READY not in gateway.out.read_text():
            if gateway.has_ended or pipeline.has_ended or time.monotonic() > deadline:
                failed = gateway if gateway.has_ended else pipeline
                raise NoArchive(f"Spark's classes cannot be saved: {failed.last_words}")
            time.sleep(_POLL_SECONDS)
        # Java saves its classes when it exits.
        pipeline.end(_SAVING_SECONDS)
        if not archive.exists():
            raise NoArchive(f"Spark's classes cannot be saved: {pipeline.last_words}")
    say(f"Spark's classes are saved: {archive.path}")


class _Part:
    """A gateway or pipeline process that runs until the end of the block."""

    def __init__(self, folder: Path, settings: Settings, name: str, *words: str) -> None:
        self.out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                [*command(name), *words],
                env=environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(_ENDING_SECONDS)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def last_words(self) -> str:
        """Return the process's last line on standard error, without the prefix that the command line adds."""
        lines = self._err.read_text(errors="replace").strip().splitlines() or ["it gave no reason"]
        return lines[-1].removeprefix("oncebus: ")

    def end(self, seconds: float) -> None:
        """Ask the process to end, and kill it if it does not end in time."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
