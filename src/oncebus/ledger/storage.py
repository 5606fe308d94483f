"""Defines the storage of a ledger: a flat folder of files that appear as a whole and never change.

`storage_at` opens a local folder, or a folder in a bucket of S3, Google Cloud Storage or Azure Blob Storage.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from oncebus.values import disk
from oncebus.values.errors import OncebusError

ABANDONED_SECONDS = 3600.0
"""The writer of a temporary file older than this must have died."""

Piece = bytes | memoryview


class StorageError(OncebusError):
    """The folder of a ledger cannot be used."""


class Stamp(NamedTuple):
    """Distinguishes two versions of a file with the same name. `tag` is the ETag of an object store."""

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
        """Return the names and stamps of all files; none if the folder does not exist."""

    def read(self, name: str) -> memoryview:
        """Return the whole file, memory-mapped if possible."""

    def read_part(self, name: str, begin: int, end: int) -> memoryview:
        """Return the bytes from `begin` to `end` of the file itself, never of a copy on this machine, and keep no copy.

        Fewer bytes if the file is shorter.
        """

    def publish(self, name: str, pieces: Sequence[Piece]) -> None:
        """Write a file, or replace it."""

    def publish_new(self, name: str, pieces: Sequence[Piece]) -> bool:
        """Write a file unless the name exists. Return whether it was written.

        Of several callers with different content, exactly one gets True. A caller whose own content is already there
        may also get True: if an answer is lost, an object store cannot distinguish the first attempt of the caller from
        another writer. So a claim must contain something unique to the claimant.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and ignore those that are already gone."""

    def is_verified(self, name: str, stamp: Stamp) -> bool:
        """Return whether this machine has already compared the file with its checksum."""

    def set_verified(self, name: str, stamp: Stamp) -> None:
        """Record on this machine that the file matches its checksum."""

    def forget(self, name: str) -> bool:
        """Delete this machine's copy of a damaged file.

        Return whether there was a copy: if so, `read` fetches the file again.
        """


def storage_at(location: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or URI. Touches neither disk nor network."""
    # Imported here, because a local ledger needs no client for object stores.
    from oncebus.ledger.local_storage import LocalStorage

    text = os.fspath(location)
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StorageError(
                f"Ledger location '{hide_secrets(text)}' is not a path on this machine: write it like file:///folder."
            )
        return LocalStorage(unquote(parts.path).rstrip("/") or "/")
    if "://" not in text:
        return LocalStorage(os.path.abspath(text))
    from oncebus.ledger.object_storage import object_storage

    return object_storage(text)


def hide_secrets(uri: str) -> str:
    """Return the URI for an error, which may end up in a log: without its query, its fragment, a user and a password.

    In the URIs of Azure, the text before an @ is a container or an account, and stays.
    """
    bare, *hidden = re.split("[?#]", uri, maxsplit=1)
    # With a password up to the last @: keys of S3 and Azure may contain a slash.
    bare, passwords = re.subn("//.*:.*@", "//…@", bare, count=1)
    if not passwords and not bare.startswith(("abfs:", "abfss:", "az:")):
        bare = re.sub("//[^/]*@", "//…@", bare, count=1)
    return bare + ("?…" if hidden else "")


def list_until_agreed(scan: Callable[[], dict[str, Stamp]]) -> dict[str, Stamp]:
    """Scan repeatedly until a scan finds all files of the one before and no other claim, and return its result.

    A scan takes time. If runs are merged meanwhile, it may miss both the new run and the old ones. The old ones were
    deleted while it ran, so the scan before has found them. If a batch joins meanwhile, it may find the claim of the
    batch and miss the runs, which were published before it. Other new files do no harm: tasks publish all the time.
    """
    found = scan()
    while True:
        again = scan()
        if found.keys() <= again.keys() and not any(map(_is_claim, again.keys() - found.keys())):
            return again
        found = again


def _is_claim(name: str) -> bool:
    return name.startswith("generation-")


def abandoned_files(names: dict[str, Stamp]) -> list[str]:
    """Return the names of temporary files whose writer must have died."""
    old_ns = time.time_ns() - int(ABANDONED_SECONDS * 1e9)
    return [name for name, stamp in names.items() if name.startswith(disk.TEMPORARY) and stamp.modified_ns < old_ns]
