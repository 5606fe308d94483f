"""Makes the class archive that lets Spark start sooner: runs a broker once, and lets its Java save what it loaded."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from oncebus.pipeline.jvm import ClassArchive, NoArchive, Recording, default_cache
from oncebus.serve.checks import check_java
from oncebus.serve.service import command, environment
from oncebus.settings import Settings

_READY = "Oncebus is ready"
_READY_SECONDS = 300.0
_SAVING_SECONDS = 300.0
_ENDING_SECONDS = 10.0
_POLL_SECONDS = 0.1


def make_archive(cache: Path | None) -> str:
    """Make the archive, if there is none; a line that says what was done. Raises `NoArchive`."""
    check_java()
    archive = ClassArchive(cache.absolute() if cache is not None else default_cache())
    if archive.exists():
        return f"Spark's classes are saved already: {archive.path}"
    # Whether one can be kept shows before a broker runs for it.
    Recording(archive)
    with tempfile.TemporaryDirectory(prefix="oncebus-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        settings = Settings(data=folder / "data", http_port=0, amqp_port=0, master="local[2]", cache=cache)
        gateway = stack.enter_context(_Part(folder, settings, "gateway"))
        pipeline = stack.enter_context(_Part(folder, settings, "pipeline", "--record-classes"))
        deadline = time.monotonic() + _READY_SECONDS
        while _READY not in gateway.out.read_text():
            if gateway.has_ended or pipeline.has_ended or time.monotonic() > deadline:
                raise NoArchive(f"Spark's classes cannot be saved: {pipeline.last_words or gateway.last_words}")
            time.sleep(_POLL_SECONDS)
        # Java saves its classes as it ends.
        pipeline.end(_SAVING_SECONDS)
        if not archive.exists():
            raise NoArchive(f"Spark's classes cannot be saved: {pipeline.last_words}")
    return f"Spark's classes are saved: {archive.path}"


class _Part:
    """A gateway or a pipeline that runs until the end of the block."""

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
        """The last line that it wrote to standard error."""
        return (self._err.read_text(errors="replace").strip().splitlines() or ["it gave no reason"])[-1]

    def end(self, seconds: float) -> None:
        """Ask it to end, and kill it where it does not."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
