"""The virtual machine that Spark's driver runs in: its options, and an archive of classes that lets it start sooner.

Before its first batch Spark loads thousands of classes, which takes several seconds of a small machine each time. Java
can write the classes that a run has loaded into an archive as it ends (`-XX:ArchiveClassesAtExit`), and map them from
there the next time. The first run of a Spark and a Java that ends in peace leaves one in the cache folder; should it be
lost, or be of no use, Spark starts as it always does.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark import SparkContext

log = logging.getLogger(__name__)

# The driver hands Arrow batches on and plans small jobs: what the optimising compiler would win, it never earns back.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_SUFFIX = ".jsa"
_MOST_KEPT = 2
_ENDING_SECONDS = 60


class ClassArchive:
    """The archive of the Spark and the Java that are installed here, if there is one; else how one is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._recorded: Path | None = None
        name = _name_here()
        if name is not None and _is_private(folder):
            self._path = folder / name
            if not self._path.exists():
                self._recorded = folder / f".{uuid.uuid4().hex}{_SUFFIX}"
                # A run that was killed as it ended has left one, and the next may be killed too.
                self._delete_old_ones()

    @property
    def options(self) -> Sequence[str]:
        """What Java has to be told."""
        if self._recorded is not None:
            return (f'-XX:ArchiveClassesAtExit="{self._recorded}"', *_QUIET)
        if self._path is not None:
            return (f'-XX:SharedArchiveFile="{self._path}"', *_QUIET)
        return ()

    def close(self) -> None:
        """End the virtual machine, and keep the archive that it leaves."""
        if self._path is None or self._recorded is None:
            return
        try:
            if _has_ended_well() and self._recorded.exists():
                os.replace(self._recorded, self._path)
                self._delete_old_ones()
        except OSError as error:
            log.warning("Archive '%s' cannot be kept: %s", self._path, error.strerror)
        finally:
            self._recorded.unlink(missing_ok=True)

    def _delete_old_ones(self) -> None:
        """Other versions leave theirs, and a run that was killed an unfinished one."""
        with suppress(OSError):
            archives = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in archives[_MOST_KEPT:]:
                path.unlink(missing_ok=True)


def default_cache() -> Path:
    """Where the user keeps what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "oncebus"


def _name_here() -> str | None:
    """Names this Spark and this Java; None where there is no Java to be found."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        return None
    path = Path(java).resolve()
    status = path.stat()
    about = f"{path} {status.st_size} {status.st_mtime_ns} {Path(pyspark.__file__).resolve()}"
    return f"spark-{pyspark.__version__}-{hashlib.sha256(about.encode()).hexdigest()[:16]}{_SUFFIX}"


def _is_private(folder: Path) -> bool:
    """Make the folder; whether nobody else can write what Java would run from it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _has_ended_well() -> bool:
    """End Java, which writes the archive as it ends."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return False
    log.info("The classes of Java are being saved, for quicker starts: stopping takes up to a minute")
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    try:
        return bool(process.wait(_ENDING_SECONDS) == 0)
    except subprocess.TimeoutExpired:
        return False
