"""Where a ledger's files lie: one flat folder of files that are written once, whole, and never changed.

`storage_at` opens a local path directly, and anything else with a scheme ("s3://…", "hdfs://…") through pyarrow.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from pyarrow import ArrowException
from pyarrow import fs as arrow_fs

from oncebus.errors import OncebusError
from oncebus.files import TEMPORARY, make_folder, map_file

_ABANDONED_SECONDS = 3600.0
_OBJECT_STORES = ("s3", "gcs", "abfs")
_VERIFIED_ABOVE_BYTES = 1 << 20

Piece = bytes | memoryview


class StorageError(OncebusError):
    """A ledger's folder cannot be used."""


class Stamp(NamedTuple):
    """Tells two files apart that had the same name at different times."""

    size: int
    modified_ns: int


class Storage(Protocol):
    """A flat folder of immutable files.

    `publish` makes the whole file appear at once and durably, or not at all; publishing the same name again replaces
    it. `read` may raise `FileNotFoundError`: another process may have deleted what `names` told of. Every other
    failure is a `StorageError`.
    """

    location: str

    def names(self) -> dict[str, Stamp]:
        """All files; none if the folder does not exist."""

    def read(self, name: str) -> memoryview:
        """The whole file, memory-mapped where that is possible."""

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """Write a file."""

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """Write a file unless there is one of that name; whether it was written.

        On a file system that cannot tell, two that do this at the same instant may both be told that they did.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already do not matter."""

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """Whether this machine has compared the file with its checksum before."""

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Remember on this machine that it has."""


def storage_at(location: str | os.PathLike[str]) -> Storage:
    """The storage at a path or URI. Touches nothing."""
    text = os.fspath(location)
    if "://" not in text and not text.startswith("file:"):
        return LocalStorage(os.path.abspath(text))
    try:
        filesystem, path = arrow_fs.FileSystem.from_uri(text)
    except (ArrowException, OSError, ValueError) as error:
        raise StorageError(f"Ledger location '{text}' cannot be opened: {_one_line(error)}") from error
    if isinstance(filesystem, arrow_fs.LocalFileSystem):
        return LocalStorage(path)
    return ArrowStorage(filesystem, path, text)


class LocalStorage:
    """A folder of the local file system, or of one mounted like it."""

    def __init__(self, path: str) -> None:
        self.location = path
        self._scratch = _scratch_folder(path)

    def names(self) -> dict[str, Stamp]:
        """See `Storage`."""
        return _agreed(self._scan)

    def _scan(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        try:
            with os.scandir(self.location) as entries:
                for entry in entries:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    if not entry.name.startswith(TEMPORARY) or time.time() - status.st_mtime > _ABANDONED_SECONDS:
                        found[entry.name] = Stamp(status.st_size, status.st_mtime_ns)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"Ledger folder '{self.location}' cannot be read: {error.strerror}") from error
        return found

    def read(self, name: str) -> memoryview:
        """See `Storage`."""
        try:
            return memoryview(map_file(os.path.join(self.location, name))).cast("B")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(f"Ledger file '{self.location}/{name}' cannot be read: {error.strerror}") from error

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """See `Storage`."""
        self._write(name, pieces, os.replace)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """See `Storage`. A link fails where the name is taken, so of several only one is told that it wrote."""
        is_taken = False

        def link(temporary: str, target: str) -> None:
            nonlocal is_taken
            try:
                os.link(temporary, target)
            except FileExistsError:
                is_taken = True

        self._write(name, pieces, link)
        return not is_taken

    def _write(self, name: str, pieces: Sequence[Piece], place: Callable[[str, str], None]) -> None:
        try:
            _write_file(self.location, name, pieces, durable=True, place=place)
        except OSError as error:
            raise StorageError(
                f"Ledger folder '{self.location}' cannot be written: {error.strerror} ('{name}')"
            ) from error

    def delete(self, names: Iterable[str]) -> None:
        """See `Storage`."""
        for name in names:
            try:
                Path(self.location, name).unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(
                    f"Ledger file '{self.location}/{name}' cannot be deleted: {error.strerror}"
                ) from error
            if self._scratch.exists():
                for marker in self._scratch.glob(f"{name}.*"):
                    marker.unlink(missing_ok=True)

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """See `Storage`."""
        return stamp.size > _VERIFIED_ABOVE_BYTES and self._marker(name, stamp).exists()

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """See `Storage`. Small files are not worth a note: they are compared each time a process opens them."""
        if stamp.size > _VERIFIED_ABOVE_BYTES:
            _make_private(self._scratch)
            self._marker(name, stamp).touch()

    def _marker(self, name: str, stamp: Stamp) -> Path:
        return self._scratch / f"{name}.{stamp.size}.{stamp.modified_ns}"


class ArrowStorage:
    """A folder of any file system that pyarrow opens; what is read is kept and mapped in a local scratch folder."""

    def __init__(self, filesystem: arrow_fs.FileSystem, path: str, location: str) -> None:
        self.location = location
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self._scratch = _scratch_folder(location)

    def names(self) -> dict[str, Stamp]:
        """See `Storage`."""
        return _agreed(self._scan)

    def _scan(self) -> dict[str, Stamp]:
        try:
            infos = self._filesystem.get_file_info(arrow_fs.FileSelector(self._path, allow_not_found=True))
        except (ArrowException, OSError) as error:
            raise StorageError(f"Ledger folder '{self.location}' cannot be read: {_one_line(error)}") from error
        return {
            info.base_name: Stamp(info.size, info.mtime_ns or 0)
            for info in infos
            if info.type == arrow_fs.FileType.File
        }

    def read(self, name: str) -> memoryview:
        """See `Storage`."""
        try:
            info = self._filesystem.get_file_info(f"{self._path}/{name}")
        except (ArrowException, OSError) as error:
            raise StorageError(f"Ledger file '{self.location}/{name}' cannot be read: {_one_line(error)}") from error
        if info.type != arrow_fs.FileType.File:
            raise FileNotFoundError(name)
        # Before anything is believed to have been kept by us.
        _make_private(self._scratch)
        kept = self._kept(name, Stamp(info.size, info.mtime_ns or 0))
        if not kept.exists():
            try:
                with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
                    data = stream.read()
            except FileNotFoundError:
                raise
            except (ArrowException, OSError) as error:
                raise StorageError(
                    f"Ledger file '{self.location}/{name}' cannot be read: {_one_line(error)}"
                ) from error
            _write_file(str(self._scratch), kept.name, [data], durable=False)
        return memoryview(map_file(str(kept))).cast("B")

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """See `Storage`."""
        # An object store shows an object only once it is whole; elsewhere the rename makes it appear.
        direct = self._filesystem.type_name in _OBJECT_STORES
        target = f"{self._path}/{name}"
        written = target if direct else f"{self._path}/{TEMPORARY}{uuid.uuid4().hex}"
        try:
            self._filesystem.create_dir(self._path, recursive=True)
            with self._filesystem.open_output_stream(written) as stream:
                for piece in pieces:
                    stream.write(piece)
            if not direct:
                self._filesystem.move(written, target)
        except (ArrowException, OSError) as error:
            raise StorageError(
                f"Ledger folder '{self.location}' cannot be written: {_one_line(error)} ('{name}')"
            ) from error

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """See `Storage`. Not exclusive: what is read back afterwards decides."""
        if name in self._scan():
            return False
        self.publish(name, pieces)
        return bytes(self.read(name)) == b"".join(pieces)

    def delete(self, names: Iterable[str]) -> None:
        """See `Storage`."""
        for name in names:
            try:
                self._filesystem.delete_file(f"{self._path}/{name}")
            except FileNotFoundError:
                pass
            except (ArrowException, OSError) as error:
                raise StorageError(
                    f"Ledger file '{self.location}/{name}' cannot be deleted: {_one_line(error)}"
                ) from error
            for kept in self._scratch.glob(f"{name}.*"):
                kept.unlink(missing_ok=True)

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """See `Storage`."""
        return self._kept(name, stamp).with_suffix(".verified").exists()

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """See `Storage`."""
        self._kept(name, stamp).with_suffix(".verified").touch()

    def _kept(self, name: str, stamp: Stamp) -> Path:
        return self._scratch / f"{name}.{stamp.size}-{stamp.modified_ns}.kept"


def _agreed(scan: Callable[[], dict[str, Stamp]]) -> dict[str, Stamp]:
    """What two scans in a row agree on.

    A scan is not a moment: one that overlaps a merge may miss the new run as well as the old ones.
    """
    found = scan()
    while (again := scan()) != found:
        found = again
    return found


def abandoned(names: dict[str, Stamp]) -> list[str]:
    """Temporary files whose writer must have died."""
    old_ns = time.time_ns() - int(_ABANDONED_SECONDS * 1e9)
    return [name for name, stamp in names.items() if name.startswith(TEMPORARY) and stamp.modified_ns < old_ns]


def _write_file(
    folder: str,
    name: str,
    pieces: Sequence[Piece],
    *,
    durable: bool,
    place: Callable[[str, str], None] = os.replace,
) -> None:
    make_folder(folder)
    temporary = os.path.join(folder, TEMPORARY + uuid.uuid4().hex)
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        place(temporary, os.path.join(folder, name))
    finally:
        Path(temporary).unlink(missing_ok=True)
    if durable:
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _scratch_folder(location: str) -> Path:
    """A folder of this user's on this machine, for what can be made again."""
    digest = hashlib.sha256(location.encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"oncebus-{os.getuid()}" / digest


def _make_private(scratch: Path) -> None:
    """Make the scratch folder, and refuse one that another user could have filled."""
    home = scratch.parent
    home.mkdir(mode=0o700, exist_ok=True)
    status = home.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not home.is_dir() or home.is_symlink():
        raise StorageError(f"Scratch folder '{home}' belongs to or is open to another user. Remove it or set TMPDIR.")
    scratch.mkdir(exist_ok=True)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
