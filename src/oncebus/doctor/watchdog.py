"""Ends this process if it hangs, for example in Spark's start or in a file system that does not answer."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GRACE_SECONDS = 15.0
"""Checks that notice the time limit themselves get this long to delete their files and stop Spark."""


@contextmanager
def watch(seconds: float, report: Callable[[], None]) -> Iterator[None]:
    """Call `report` and end this process with exit code 1 if the block takes longer than the limit and the grace.

    The temporary files of the block go to a folder of their own. It is deleted in any case.
    """
    before = tempfile.tempdir
    scratch = tempfile.mkdtemp(prefix="oncebus-")
    tempfile.tempdir = scratch

    def end() -> None:
        try:
            report()
        finally:
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

    timer = threading.Timer(seconds + GRACE_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        tempfile.tempdir = before
        shutil.rmtree(scratch, ignore_errors=True)


def _children() -> list[int]:
    """Return the processes that this process has started, such as the one of Java."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found
