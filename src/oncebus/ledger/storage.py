"""Where a ledger's files lie: one flat folder of files that are written once, whole, and never changed.

`storage_at` opens a folder of this machine, or a bucket's folder on S3, Google Cloud Storage or Azure Blob Storage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from oncebus.errors import OncebusError
from oncebus.files import TEMPORARY

ABANDONED_SECONDS = 3600.0
"""A temporary file that is older has lost its writer."""

Piece = bytes | memoryview


class StorageError(OncebusError):
    """A ledger's folder cannot be used."""


class Stamp(NamedTuple):
    """Tells two files apart that had the same name at different times. `tag` is an object store's own (ETag)."""

    size: int
    modified_ns: int
    tag: str = ""


class Storage(Protocol):
    """A flat folder of immutable files.

    `publish` makes the whole file appear at once and durably, or not at all; publishing the same name again replaces
    it. `read` may raise `FileNotFoundError`: another process may have deleted a file that `names` has just returned.
    Every other failure is a `StorageError`. All calls return or fail within a bounded time.
    """

    location: str

    def names(self) -> dict[str, Stamp]:
        """All files; none if the folder does not exist."""

    def read(self, name: str) -> memoryview:
        """The whole file, memory-mapped where that is possible."""

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """Write a file."""

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """Write a file unless there is one of that name; return whether it was written.

        Of several callers with different content exactly one gets True. A caller whose content is there already may
        get True as well: an object store whose answer was lost cannot tell the caller's first attempt from another's.
        So a claim has to hold something that is the claimant's own.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; files that are gone already do not matter."""

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """Whether this machine has compared the file with its checksum before."""

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Record on this machine that it has."""

    def forget(self, name: str) -> bool:
        """Drop this machine's copy of a damaged file; return whether there was one, so that `read` fetches it again."""


def storage_at(location: str | os.PathLike[str]) -> Storage:
    """The storage at a path or URI. Touches neither disk nor network."""
    # Here, because a ledger on a disk needs no client of object stores.
    from oncebus.ledger.local_storage import LocalStorage

    text = os.fspath(location)
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StorageError(f"Ledger location '{text}' is not a path of this machine: write it like file:///folder.")
        return LocalStorage(unquote(parts.path).rstrip("/") or "/")
    if "://" not in text:
        return LocalStorage(os.path.abspath(text))
    from oncebus.ledger.object_storage import object_storage

    return object_storage(text)


def agreed(scan: Callable[[], dict[str, Stamp]]) -> dict[str, Stamp]:
    """What two scans in a row agree on.

    A scan is not a moment: one that overlaps a merge may miss the new run as well as the old ones.
    """
    found = scan()
    while (again := scan()) != found:
        found = again
    return found


def abandoned(names: dict[str, Stamp]) -> list[str]:
    """Temporary files whose writer must have died."""
    old_ns = time.time_ns() - int(ABANDONED_SECONDS * 1e9)
    return [name for name, stamp in names.items() if name.startswith(TEMPORARY) and stamp.modified_ns < old_ns]
