"""The folder of catalogues. Each version is a file that is written once, atomically, and never changed.

    <folder>/000000000012.json     see `oncebus.model.entities.catalogue_json`
    <folder>/.tmp-…                being written, or left behind by a writer that died

The files contain the keys of authorization rules, so only their owner may read them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from oncebus.model.entities.catalogue import Catalogue
from oncebus.model.entities.catalogue_json import BadCatalogue, catalogue_from_json, catalogue_to_json
from oncebus.values import disk
from oncebus.values.errors import NOT_READY, ErrorKind, OncebusError

_NAME = re.compile(r"([0-9]{12})\.json")
_MOST_CACHED = 16

_Stamp = tuple[str, int, int, int]
_cache: OrderedDict[_Stamp, Catalogue] = OrderedDict()
_cache_lock = Lock()


class CatalogueFileError(OncebusError):
    """A catalogue file is missing or damaged, cannot be read or written, or does not belong in the folder."""

    kind = ErrorKind.BUSY
    told = NOT_READY


class CatalogueFiles:
    """The versions of one catalogue in a folder. Only one process may publish; any number may load."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).absolute()

    def versions(self) -> list[int]:
        """Return the numbers of all versions in the folder, in ascending order."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        versions = []
        for name in names:
            if match := _NAME.fullmatch(name):
                versions.append(int(match[1]))
            elif not name.startswith("."):
                raise CatalogueFileError(f"File '{self._folder / name}' is not a version of a catalogue. Remove it.")
        return sorted(versions)

    def latest(self) -> Catalogue | None:
        """Return the highest version; None if nothing was ever published."""
        versions = self.versions()
        return self.load(versions[-1]) if versions else None

    def load(self, version: int) -> Catalogue:
        """Return the given version. Recently loaded versions come from this process's cache."""
        path = self._path(version)
        try:
            status = os.stat(path)
            # The cache key is more than the name: a folder may have been deleted and created again.
            stamp = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
            with _cache_lock:
                if stamp in _cache:
                    _cache.move_to_end(stamp)
                    return _cache[stamp]
            data = path.read_bytes()
        except FileNotFoundError:
            raise CatalogueFileError(f"Version {version} of the catalogue is missing: no file '{path}'.") from None
        except OSError as error:
            raise CatalogueFileError(f"Catalogue file '{path}' cannot be read: {error.strerror}") from error
        catalogue = _parse(data, path)
        if catalogue.version != version:
            raise CatalogueFileError(f"Catalogue file '{path}' holds version {catalogue.version}.")
        with _cache_lock:
            _cache[stamp] = catalogue
            while len(_cache) > _MOST_CACHED:
                _cache.popitem(last=False)
        return catalogue

    def publish(self, catalogue: Catalogue) -> None:
        """Make a version durable. Once this returns, every reader can load it, even after a crash.

        Versions only go up, and may skip numbers. Raises `CatalogueFileError` for a version that is not above the
        latest one, and if the file cannot be written.
        """
        versions = self.versions()
        if versions and catalogue.version <= versions[-1]:
            raise CatalogueFileError(
                f"Version {catalogue.version} of the catalogue cannot be published in '{self._folder}':"
                f" it is already at version {versions[-1]}."
            )
        path = self._path(catalogue.version)
        try:
            disk.make_folder(self._folder)
            disk.delete_abandoned(self._folder)
            disk.publish(self._folder, path.name, [catalogue_to_json(catalogue).encode("ascii")], mode=disk.PRIVATE)
        except OSError as error:
            # Delete the file even if it already has its final name: a refused change must not appear after a restart,
            # and the next change needs the same version number.
            with contextlib.suppress(OSError):
                disk.delete(path)
            raise CatalogueFileError(f"Catalogue file '{path}' cannot be written: {error.strerror}") from error

    def delete_below(self, version: int) -> None:
        """Delete all versions below the given one, but never the latest."""
        for each in self.versions()[:-1]:
            if each < version:
                disk.delete(self._path(each))

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:012}.json"


def _parse(data: bytes, path: Path) -> Catalogue:
    try:
        return catalogue_from_json(data)
    except BadCatalogue as error:
        raise CatalogueFileError(f"Catalogue file '{path}' is damaged: {error}. Restore it from a backup.") from error
