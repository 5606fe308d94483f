"""Configures the Java virtual machine of Spark's driver, and keeps an archive of classes that lets it start faster.

Before its first batch Spark loads thousands of classes, which takes several seconds on a small machine. Java can write
the classes that it has loaded into an archive when it exits (`-XX:ArchiveClassesAtExit`), and map them into memory the
next time. Writing the archive takes up to a minute, so only `oncebus warm-up` does it, never a broker that stops.
Without an archive, or with one that Java cannot use, Spark starts at its usual speed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from oncebus.spark.borrowed import detach_gateway
from oncebus.values import disk
from oncebus.values.errors import OncebusError

# The driver passes Arrow batches on and plans small jobs. The optimising compiler would cost it more than it saves, and
# what it allocates is soon garbage: a large young generation would only become resident memory.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn24m")

HEAP = "512m"
"""The memory of a driver that runs the tasks too. Spark refuses to run with less than 450 MB."""

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_SUFFIX = ".jsa"
_UNUSED_SECONDS = 30 * 86400.0
"""An archive that no Java has used for this long is deleted, whichever installation it is of."""
_UNFINISHED_SECONDS = 3600.0
"""The recording of an unfinished archive this old was killed."""
_EXIT_TIMEOUT_SECONDS = 180


class NoArchive(OncebusError):
    """Java wrote no class archive, or the archive cannot be stored."""


class ClassArchive:
    """The class archive for the installed versions of Spark and Java. `path` is None if no archive can be stored."""

    def __init__(self, folder: Path) -> None:
        name = _archive_name()
        self.path = folder / name if name is not None and _is_private(folder) else None

    def exists(self) -> bool:
        """Return whether the archive has been written."""
        return self.path is not None and self.path.exists()

    @property
    def options(self) -> Sequence[str]:
        """Return the Java options that use the archive; none if there is no archive."""
        if self.path is not None:
            # The archives that are used last are kept longest.
            with suppress(OSError):
                os.utime(self.path)
        return (f'-XX:SharedArchiveFile="{self.path}"', *_QUIET) if self.exists() else ()


class Recording:
    """Makes a Java process write the archive when it exits. Raises `NoArchive` if no archive can be stored."""

    def __init__(self, archive: ClassArchive) -> None:
        if archive.path is None:
            raise NoArchive(
                "No class archive can be stored: there is no Java, or other users can write to the cache folder."
            )
        self._path = archive.path
        self._recorded = archive.path.with_name(f".{uuid.uuid4().hex}{_SUFFIX}")

    @property
    def options(self) -> Sequence[str]:
        """Return the options of the Java process that writes the archive."""
        return (f'-XX:ArchiveClassesAtExit="{self._recorded}"', *_QUIET)

    def close(self) -> None:
        """Stop Java and store the archive that it writes. Raises `NoArchive` if it writes none."""
        try:
            if not _stop_java() or not self._recorded.exists():
                raise NoArchive("Java exited without writing a class archive.")
            disk.replace(self._recorded, self._path)
            self._delete_old_archives()
        except OSError as error:
            raise NoArchive(f"Class archive '{self._path}' cannot be stored: {error.strerror}.") from error
        finally:
            disk.delete(self._recorded)

    def _delete_old_archives(self) -> None:
        """Delete the other archives of this installation, and those of any that were not used for long.

        Several installations may share the folder. None deletes what another one uses.
        """
        installation = f"{self._path.stem.rpartition('-')[0]}-"
        for path in self._path.parent.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                unused = time.time() - path.stat().st_mtime
                least = _UNFINISHED_SECONDS if path.name.startswith(".") else _UNUSED_SECONDS
                if unused > least or (path.name.startswith(installation) and path != self._path):
                    disk.delete(path)


def default_cache() -> Path:
    """Return the user's cache folder for Oncebus."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "oncebus"


def _archive_name() -> str | None:
    """Return a file name that identifies this installation of Spark, its jars and this Java. None without Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        return None
    program, jars = Path(java).resolve(), Path(pyspark.__file__).resolve().parent / "jars"
    # Java does not use an archive if a jar has changed, even if the same one was installed again.
    about = " ".join(map(_identity_of, [program, *sorted(jars.glob("*.jar"))]))
    return f"spark-{_digest_of(str(jars))[:8]}-{_digest_of(about)[:16]}{_SUFFIX}"


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _identity_of(path: Path) -> str:
    status = path.stat()
    # Java compares seconds too. The layers of a container image keep no more.
    return f"{path} {status.st_size} {int(status.st_mtime)}"


def _is_private(folder: Path) -> bool:
    """Create the folder, and return whether only this user can write to it: Java runs code from the archive."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _stop_java() -> bool:
    """Stop Java and wait until it has written the archive. Return whether it exited without an error."""
    gateway = detach_gateway()
    if gateway is None:
        return False
    process = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    process.stdin.close()
    try:
        return bool(process.wait(_EXIT_TIMEOUT_SECONDS) == 0)
    except subprocess.TimeoutExpired:
        process.kill()
        return False
