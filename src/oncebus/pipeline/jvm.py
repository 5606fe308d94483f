"""The virtual machine that Spark's driver runs in: its options, and an archive of classes that lets it start sooner.

Before its first batch Spark loads thousands of classes, which takes several seconds of a small machine each time. Java
can write the classes that a run has loaded into an archive as it ends (`-XX:ArchiveClassesAtExit`), and map them from
there the next time. Writing it takes up to a minute, so only `oncebus warm-up` does it, and no stop of a broker.
Without an archive, or with one that Java cannot use, Spark starts as it always does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark import SparkContext

from oncebus.errors import OncebusError

# The driver hands Arrow batches on and plans small jobs: what the optimising compiler would win, it never earns back.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_SUFFIX = ".jsa"
_MOST_KEPT = 2
_ENDING_SECONDS = 180


class NoArchive(OncebusError):
    """No class archive can be made or kept."""


class ClassArchive:
    """The archive of the Spark and the Java that are installed here. `path` is None where none can be kept."""

    def __init__(self, folder: Path) -> None:
        name = _name_here()
        self.path = folder / name if name is not None and _is_private(folder) else None

    def exists(self) -> bool:
        """Whether there is one."""
        return self.path is not None and self.path.exists()

    @property
    def options(self) -> Sequence[str]:
        """Options of a Java that starts from the archive; none if there is no archive."""
        return (f'-XX:SharedArchiveFile="{self.path}"', *_QUIET) if self.exists() else ()


class Recording:
    """Has a Java write the archive as it ends. Raises `NoArchive` where none can be kept."""

    def __init__(self, archive: ClassArchive) -> None:
        if archive.path is None:
            raise NoArchive(
                "No class archive can be kept: there is no Java, or other users can write to the cache folder."
            )
        self._path = archive.path
        self._recorded = archive.path.with_name(f".{uuid.uuid4().hex}{_SUFFIX}")

    @property
    def options(self) -> Sequence[str]:
        """Options of the Java whose classes are recorded."""
        return (f'-XX:ArchiveClassesAtExit="{self._recorded}"', *_QUIET)

    def close(self) -> None:
        """End Java, and keep the archive that it leaves. Raises `NoArchive` if it leaves none."""
        try:
            if not _has_ended_well() or not self._recorded.exists():
                raise NoArchive("Java wrote no class archive as it ended.")
            os.replace(self._recorded, self._path)
            self._delete_old_ones()
        except OSError as error:
            raise NoArchive(f"Class archive '{self._path}' cannot be kept: {error.strerror}.") from error
        finally:
            self._recorded.unlink(missing_ok=True)

    def _delete_old_ones(self) -> None:
        """Other versions leave theirs, and a recording that was killed an unfinished one."""
        with suppress(OSError):
            found = sorted(self._path.parent.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in found[_MOST_KEPT:]:
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
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    try:
        return bool(process.wait(_ENDING_SECONDS) == 0)
    except subprocess.TimeoutExpired:
        process.kill()
        return False
