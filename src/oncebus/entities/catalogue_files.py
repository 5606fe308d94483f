"""Where catalogues are kept: each version a file that is written once, whole, and never changed.

    <folder>/000000000012.json     see `oncebus.entities.catalogue_json`
    <folder>/.tmp-…                being written, or left by a writer that died

The files hold the keys of authorization rules, so only their owner and group may read them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from oncebus.entities.catalogue import Catalogue
from oncebus.entities.catalogue_json import BadCatalogue, catalogue_from_json, catalogue_to_json
from oncebus.errors import OncebusError
from oncebus.files import TEMPORARY, make_folder, sync_folder

_NAME = re.compile(r"([0-9]{12})\.json")
_MODE = 0o600
_MOST_CACHED = 16

_Stamp = tuple[str, int, int, int]
_cache: OrderedDict[_Stamp, Catalogue] = OrderedDict()
_cache_lock = Lock()


class CatalogueFileError(OncebusError):
    """A file of the catalogue is missing, damaged or not ours."""


class CatalogueFiles:
    """The versions of one catalogue in a folder. One process publishes; any number load."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).absolute()

    def versions(self) -> list[int]:
        """All that are there, in ascending order."""
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
        """The highest version; None where nothing was ever published."""
        versions = self.versions()
        return self.load(versions[-1]) if versions else None

    def load(self, version: int) -> Catalogue:
        """A version by its number. What was loaded lately in this process is not read again."""
        path = self._path(version)
        try:
            status = os.stat(path)
            # A file is known by more than its name, so that a folder that was made anew is not taken for the old one.
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
        catalogue = _parsed(data, path)
        if catalogue.version != version:
            raise CatalogueFileError(f"Catalogue file '{path}' holds version {catalogue.version}.")
        with _cache_lock:
            _cache[stamp] = catalogue
            while len(_cache) > _MOST_CACHED:
                _cache.popitem(last=False)
        return catalogue

    def publish(self, catalogue: Catalogue) -> None:
        """Make a version durable. Once this returns, every reader can load it, whatever dies.

        Versions only go up; some may be left out. One that exists is refused.
        """
        versions = self.versions()
        if versions and catalogue.version <= versions[-1]:
            raise CatalogueFileError(
                f"Version {catalogue.version} of the catalogue cannot be published in '{self._folder}':"
                f" it is already at version {versions[-1]}."
            )
        path = self._path(catalogue.version)
        temporary = path.with_name(f"{TEMPORARY}{path.name}")
        try:
            self._make_folder()
            self._clear_temporary()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(catalogue_to_json(catalogue))
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
            sync_folder(os.fspath(self._folder))
        except OSError as error:
            # Also what has its name already: a change that was refused must not be there after the next start, nor
            # stand in the way of the next change.
            for written in (temporary, path):
                with contextlib.suppress(OSError):
                    os.unlink(written)
            raise CatalogueFileError(f"Catalogue file '{path}' cannot be written: {error.strerror}") from error

    def delete_below(self, version: int) -> None:
        """Delete the versions below that nobody needs any more; never the latest."""
        for each in self.versions()[:-1]:
            if each < version:
                self._path(each).unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:012}.json"

    def _make_folder(self) -> None:
        make_folder(self._folder)

    def _clear_temporary(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith(TEMPORARY):
                os.unlink(self._folder / name)


def _parsed(data: bytes, path: Path) -> Catalogue:
    try:
        return catalogue_from_json(data)
    except BadCatalogue as error:
        raise CatalogueFileError(f"Catalogue file '{path}' is damaged: {error}. Restore it from a copy.") from error
