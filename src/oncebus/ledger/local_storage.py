"""Stores a ledger in a local folder, or in a mounted file system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from oncebus.ledger.copies import FileCopies
from oncebus.ledger.storage import ABANDONED_SECONDS, Piece, Stamp, StorageError, list_until_agreed
from oncebus.values import disk


class LocalStorage:
    """A local folder. `publish_new` creates a hard link, which fails if the name exists."""

    def __init__(self, path: str) -> None:
        self.location = path
        self._copies = FileCopies(path)

    def names(self) -> dict[str, Stamp]:
        """See `Storage`."""
        return list_until_agreed(self._scan)

    def _scan(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        try:
            with os.scandir(self.location) as entries:
                for entry in entries:
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    if not entry.name.startswith(disk.TEMPORARY) or time.time() - status.st_mtime > ABANDONED_SECONDS:
                        found[entry.name] = Stamp(status.st_size, status.st_mtime_ns)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"Ledger folder '{self.location}' cannot be read: {error.strerror}") from error
        return found

    def read(self, name: str) -> memoryview:
        """See `Storage`."""
        try:
            return memoryview(disk.map_file(os.path.join(self.location, name))).cast("B")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreadable(name, error) from error

    def read_part(self, name: str, begin: int, end: int) -> memoryview:
        """See `Storage`. Unlike a mapped file, a disk that fails raises an error instead of killing the process."""
        try:
            with open(os.path.join(self.location, name), "rb") as file:
                file.seek(begin)
                return memoryview(file.read(end - begin))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, error: OSError) -> StorageError:
        return StorageError(f"Ledger file '{self.location}/{name}' cannot be read: {error.strerror}")

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """See `Storage`."""
        with self._reporting(name):
            disk.publish(self.location, name, pieces)

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """See `Storage`. Exactly one caller gets True, even if all write the same content."""
        with self._reporting(name):
            return disk.publish_new(self.location, name, pieces)

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        try:
            disk.make_folder(self.location)
            yield
        except OSError as error:
            raise StorageError(
                f"Ledger folder '{self.location}' cannot be written: {error.strerror} ('{name}')"
            ) from error

    def delete(self, names: Iterable[str]) -> None:
        """See `Storage`."""
        for name in names:
            try:
                disk.delete(os.path.join(self.location, name))
            except OSError as error:
                raise StorageError(
                    f"Ledger file '{self.location}/{name}' cannot be deleted: {error.strerror}"
                ) from error
            self._copies.forget(name)

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """See `Storage`."""
        return self._copies.is_verified(name, stamp)

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """See `Storage`."""
        if self._copies.is_worth_marking(stamp):
            # Another machine may have deleted files. Delete their markers here.
            self._copies.sweep(self._scan())
            self._copies.set_verified(name, stamp)

    def forget(self, name: str) -> bool:  # noqa: ARG002
        """See `Storage`. There is no copy to drop: the file itself is damaged."""
        return False
