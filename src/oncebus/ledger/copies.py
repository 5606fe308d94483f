"""What a machine keeps of a ledger's files: a cache that all processes of a user share.

    HOME/BOOT/LEDGER/NAME.STAMP            a copy of a file of an object store
    HOME/BOOT/LEDGER/NAME.STAMP.verified   a marker: the file was compared with its checksum

HOME is `ONCEBUS_LEDGER_CACHE`, or a folder of the user's below the system's folder for temporary files. BOOT names this
start of the machine: what an earlier start has written may be torn by a power cut, so it is never read again. LEDGER is
a digest of the ledger's location, STAMP one of the file's size and of the store's tag for its content.

A copy appears whole, by a rename, and is only ever unlinked: a process that has mapped it keeps what it has. Copies go

- as soon as a listing shows that the file is gone, on whichever machine it was deleted;
- when they were damaged: a copy of the wrong size, or one whose content failed its checksum;
- the least recently used first, when all copies together exceed `ONCEBUS_LEDGER_CACHE_SIZE`. A copy that some process
  has used within the last ten minutes stays: it is probably mapped, and would take up its space anyway;
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

from oncebus.files import TEMPORARY, map_file
from oncebus.ledger.storage import Piece, Stamp, StorageError
from oncebus.sizes import GIB, parse_size

HOME = "ONCEBUS_LEDGER_CACHE"
SIZE = "ONCEBUS_LEDGER_CACHE_SIZE"
DEFAULT_SIZE = 4 * GIB

IN_USE_SECONDS = 600.0
STALE_SECONDS = 7 * 86_400.0
_TOUCH_SECONDS = 60.0
_BLOCK = 4096
"""The least that a file takes up."""

_MARKER = ".verified"
_MARKED_ABOVE_BYTES = 1 << 20


class Copies:
    """What this machine keeps of one ledger's files. May be called by several threads and processes at once."""

    def __init__(self, location: str) -> None:
        self._ledger = hashlib.sha256(location.encode()).hexdigest()[:32]
        self._listed: Mapping[str, Stamp] | None = None
        self._used: dict[str, Path] = {}
        self._touched = time.monotonic()
        self._unchecked_bytes: int | None = None

    def find(self, name: str, stamp: Stamp) -> memoryview | None:
        """The copy, memory-mapped; None if there is none that can be relied on."""
        # Before anything in there is believed to be ours.
        self._make_private()
        path = self._path(name, stamp)
        try:
            if path.stat().st_size != stamp.size:
                self.forget(name)
                return None
            os.utime(path)
            found = memoryview(map_file(str(path))).cast("B")
        except OSError:
            # Not there, or another process has just let it go.
            return None
        self._used[name] = path
        return found

    def keep(self, name: str, stamp: Stamp, pieces: Iterable[Piece]) -> memoryview:
        """Write a copy and return it, memory-mapped. Raises `OSError` where there is no room for it."""
        self._make_private()
        path = self._path(name, stamp)
        temporary = path.parent / (TEMPORARY + uuid.uuid4().hex)
        try:
            with temporary.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            found = memoryview(map_file(str(temporary))).cast("B")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        self._used[name] = path
        self._make_room(max(len(found), _BLOCK))
        return found

    def forget(self, name: str) -> bool:
        """Let go of all copies of a file, and of its markers; whether there was a copy."""
        self._used.pop(name, None)
        had_copy, folder = False, self._folder
        # Most ledgers lie in local folders, of which nothing is kept.
        for path in folder.glob(f"{name}.*") if folder.exists() else ():
            had_copy = had_copy or path.suffix != _MARKER
            path.unlink(missing_ok=True)
        return had_copy

    def sweep(self, listed: Mapping[str, Stamp]) -> None:
        """Let go of what is not among the files listed, and record that the rest is in use."""
        before, self._listed = self._listed, listed
        if before is None:
            wanted = {self._path(name, stamp).name for name, stamp in listed.items()}
            for path in _files(self._folder):
                if path.name.removesuffix(_MARKER) not in wanted and not path.name.startswith(TEMPORARY):
                    path.unlink(missing_ok=True)
        else:
            for name, stamp in before.items() - listed.items():
                path = self._path(name, stamp)
                path.unlink(missing_ok=True)
                path.with_name(path.name + _MARKER).unlink(missing_ok=True)
                if self._used.get(name) == path:
                    del self._used[name]
        if time.monotonic() - self._touched > _TOUCH_SECONDS:
            self._touched = time.monotonic()
            for path in list(self._used.values()):
                with suppress(OSError):
                    os.utime(path)

    def is_worth_marking(self, stamp: Stamp) -> bool:
        """Whether `set_verified` leaves a marker. Small files are compared each time a process opens them."""
        return stamp.size > _MARKED_ABOVE_BYTES

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """Whether a process of this start of the machine has called `set_verified` for a large file."""
        return _boot() is not None and self.is_worth_marking(stamp) and self._marker(name, stamp).exists()

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Record that the content of the file, or of its copy, is what was written."""
        if self.is_worth_marking(stamp):
            self._make_private()
            with suppress(OSError):
                self._marker(name, stamp).touch()

    @property
    def _folder(self) -> Path:
        return _home() / (_boot() or "unknown") / self._ledger

    def _path(self, name: str, stamp: Stamp) -> Path:
        # The time says less than the tag, and differs between a store's ways to ask for it.
        content = stamp.tag or str(stamp.modified_ns)
        return self._folder / f"{name}.{stamp.size}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def _marker(self, name: str, stamp: Stamp) -> Path:
        path = self._path(name, stamp)
        return path.with_name(path.name + _MARKER)

    def _make_private(self) -> None:
        """Make the folder, and refuse one that another user could have filled."""
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
        """Evict copies of any ledger until all together are within the limit.

        Looks at all of them for the first copy of a process, and then after each sixteenth of the limit.
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
                # Only empty folders go.
                with suppress(OSError):
                    path.parent.rmdir()
                    path.parent.parent.rmdir()


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, if there is one."""
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
    """Names this start of the machine; None where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
