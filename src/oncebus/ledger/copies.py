"""Caches a ledger's files on this machine. All processes of a user share the cache.

    HOME/BOOT/LEDGER/NAME.STAMP            a copy of a file of an object store
    HOME/BOOT/LEDGER/NAME.STAMP.verified   a marker: the file matched its checksum

HOME is `ONCEBUS_LEDGER_CACHE`, or a folder of the user in the system's folder for temporary files. BOOT is the boot id
of the machine: a power cut may tear files, so nothing from before a reboot is read again. LEDGER is a digest of the
ledger's location. STAMP is the file's size and a digest of the store's tag for its content.

A copy is renamed into place when it is complete, and never changes. A process that has mapped a deleted copy can still
read it. FileCopies are deleted

- as soon as a listing shows that the file is gone, whichever machine deleted it;
- when they are damaged: a copy of the wrong size, or one whose content fails its checksum;
- the least recently used first, when all copies together exceed `ONCEBUS_LEDGER_CACHE_SIZE`. A copy that some process
  has used within the last ten minutes stays: it is probably mapped, so deleting it would not free its space;
- after seven days without use.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from oncebus.ledger.storage import Piece, Stamp, StorageError
from oncebus.values import disk
from oncebus.values.sizes import GIB, parse_size

HOME = "ONCEBUS_LEDGER_CACHE"
SIZE = "ONCEBUS_LEDGER_CACHE_SIZE"
DEFAULT_SIZE = 4 * GIB

IN_USE_SECONDS = 600.0
STALE_SECONDS = 7 * 86_400.0
_TOUCH_SECONDS = 60.0
_BLOCK = 4096
"""The smallest space that a file takes on disk."""

_MARKER = ".verified"
_MARKED_ABOVE_BYTES = 1 << 20


class FileCopies:
    """The copies of one ledger's files on this machine. Several threads and processes may use it at once."""

    def __init__(self, location: str) -> None:
        self._ledger = hashlib.sha256(location.encode()).hexdigest()[:32]
        self._listed: Mapping[str, Stamp] | None = None
        self._used: dict[str, Path] = {}
        self._touched = time.monotonic()
        self._unchecked_bytes: int | None = None

    def find(self, name: str, stamp: Stamp) -> memoryview | None:
        """Return the copy, memory-mapped; None if there is no intact copy."""
        # Check this before trusting anything in the folder.
        self._make_private()
        path = self._path(name, stamp)
        try:
            if path.stat().st_size != stamp.size:
                self.forget(name)
                return None
            os.utime(path)
            found = memoryview(disk.map_file(str(path))).cast("B")
        except OSError:
            # There is no copy, or another process has just deleted it.
            return None
        self._used[name] = path
        return found

    def keep(self, name: str, stamp: Stamp, pieces: Iterable[Piece]) -> memoryview:
        """Write a copy and return it, memory-mapped. Raises `OSError` if the disk is full."""
        self._make_private()
        path = self._path(name, stamp)
        temporary = path.parent / (disk.TEMPORARY + uuid.uuid4().hex)
        try:
            with temporary.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            found = memoryview(disk.map_file(str(temporary))).cast("B")
            disk.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        self._used[name] = path
        self._make_room(max(len(found), _BLOCK))
        return found

    def forget(self, name: str) -> bool:
        """Delete all copies of a file, and its markers. Return whether there was a copy."""
        self._used.pop(name, None)
        had_copy, folder = False, self._folder
        # Most ledgers are local folders, which have no copies.
        for path in folder.glob(f"{name}.*") if folder.exists() else ():
            had_copy = had_copy or path.suffix != _MARKER
            path.unlink(missing_ok=True)
        return had_copy

    def sweep(self, listed: Mapping[str, Stamp]) -> None:
        """Delete copies of files that are no longer listed, and record that the other copies are in use."""
        before, self._listed = self._listed, listed
        if before is None:
            wanted = {self._path(name, stamp).name for name, stamp in listed.items()}
            for path in _files(self._folder):
                if path.name.removesuffix(_MARKER) not in wanted and not path.name.startswith(disk.TEMPORARY):
                    path.unlink(missing_ok=True)
        else:
            for name, stamp in before.items() - listed.items():
                path = self._path(name, stamp)
                path.unlink(missing_ok=True)
                path.with_name(path.name + _MARKER).unlink(missing_ok=True)
                if self._used.get(name) == path:
                    self._used.pop(name, None)
        if time.monotonic() - self._touched > _TOUCH_SECONDS:
            self._touched = time.monotonic()
            for path in list(self._used.values()):
                with suppress(OSError):
                    os.utime(path)

    def is_worth_marking(self, stamp: Stamp) -> bool:
        """Return whether `set_verified` writes a marker. A small file is verified each time a process opens it."""
        return stamp.size > _MARKED_ABOVE_BYTES

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """Return whether a process has called `set_verified` for this large file since the machine booted."""
        return _boot() is not None and self.is_worth_marking(stamp) and self._marker(name, stamp).exists()

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Record that the content of the file, or of its copy, matches its checksum."""
        if self.is_worth_marking(stamp):
            self._make_private()
            with suppress(OSError):
                self._marker(name, stamp).touch()

    @property
    def _folder(self) -> Path:
        return _home() / (_boot() or "unknown") / self._ledger

    def _path(self, name: str, stamp: Stamp) -> Path:
        # Prefer the tag: the time says less, and some stores report it differently in a listing and in a request.
        content = stamp.tag or str(stamp.modified_ns)
        return self._folder / f"{name}.{stamp.size}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def _marker(self, name: str, stamp: Stamp) -> Path:
        path = self._path(name, stamp)
        return path.with_name(path.name + _MARKER)

    def _make_private(self) -> None:
        """Create the folder. Raises `StorageError` if another user could have written to it."""
        home = _home()
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = home.lstat()
        except OSError as error:
            raise StorageError(f"Cache folder '{home}' cannot be made: {error.strerror}. Set {HOME}.") from error
        if status.st_uid != os.getuid() or status.st_mode & 0o022 or not home.is_dir() or home.is_symlink():
            raise StorageError(f"Cache folder '{home}' belongs to or is open to another user. Remove it or set {HOME}.")
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _make_room(self, added: int) -> None:
        """Delete copies of any ledger until all copies together are within the limit.

        Scans the cache when a process writes its first copy, and again each time it has written a sixteenth of the
        limit.
        """
        most = _most()
        if self._unchecked_bytes is not None and self._unchecked_bytes + added < most // 16:
            self._unchecked_bytes += added
            return
        self._unchecked_bytes = 0
        now, boot = time.time(), _boot()
        found = []
        for path in _files(_home()):
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((path.parent.parent.name == boot, status.st_mtime, max(status.st_size, _BLOCK), path))
        total = sum(size for _, _, size, _ in found)
        for _, used, size, path in sorted(found):
            unused = now - used
            if unused > STALE_SECONDS or (total > most and unused > IN_USE_SECONDS):
                path.unlink(missing_ok=True)
                total -= size
                # `rmdir` removes only empty folders.
                with suppress(OSError):
                    path.parent.rmdir()
                    path.parent.parent.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, if it exists."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _home() -> Path:
    given = os.environ.get(HOME)
    return Path(given).absolute() if given else Path(tempfile.gettempdir()) / f"oncebus-{os.getuid()}"


def _most() -> int:
    given = os.environ.get(SIZE)
    if not given:
        return DEFAULT_SIZE
    try:
        return parse_size(given)
    except ValueError as error:
        raise StorageError(f"The environment variable {SIZE} has value '{given}'. {error}") from None


@cache
def _boot() -> str | None:
    """Return the boot id of the machine; None if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
