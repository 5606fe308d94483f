"""The source files of a run, and their format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncebus.dedup import DedupError

FORMATS = ("parquet", "json", "csv")
_EXTENSIONS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was listed."""

    path: str
    size: int
    modified_ns: int

    def has_changed(self) -> bool:
        """Return whether the file has been deleted or changed since it was listed."""
        try:
            return SourceFile.at(self.path) != self
        except FileNotFoundError:
            return True

    @classmethod
    def at(cls, path: str) -> SourceFile:
        """Return the current state of a file."""
        stat = os.stat(path)
        return cls(path, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of all SRC arguments, in one format."""

    given: tuple[Path, ...]
    files: tuple[SourceFile, ...]
    format: str

    @property
    def is_partitioned(self) -> bool:
        """Return whether there are folders like `day=1`, whose names Spark turns into columns."""
        parents = (Path(file.path).parent for file in self.files)
        return any("=" in name for parent in set(parents) for name in _below(parent, self.given))

    @property
    def is_packed(self) -> bool:
        """Return whether the files are compressed, so that their content is much larger."""
        return self.format == "parquet" or any(file.path.endswith(_PACKED) for file in self.files)


def local_path(text: str, what: str) -> Path:
    """Return the absolute path of a local file or folder. Raises `DedupError` for a remote address."""
    match = _SCHEME.fullmatch(text)
    if match is not None and not os.path.lexists(text):
        if match["scheme"].lower() != "file":
            raise DedupError(f"{what} '{text}' is not a local path. Only local files and folders are supported.")
        text = re.sub(r"^//(?=/)", "", match["path"])
    return Path(os.path.abspath(text))


def find_sources(given: Sequence[str], format_name: str | None) -> Sources:
    """List the files of all SRC arguments. Hidden files (`.x`, `_x`) are ignored, as in Spark. Raises `DedupError`."""
    paths = tuple(dict.fromkeys(local_path(text, "Source") for text in given))
    files: dict[str, SourceFile] = {}
    for path in paths:
        if not path.exists():
            raise DedupError(f"Source '{path}' does not exist.")
        found = {name: SourceFile.at(name) for name in _files_of(path)}
        if not found:
            raise DedupError(f"Source '{path}' contains no files.")
        files.update(found)
    ordered = tuple(files[name] for name in sorted(files))
    return Sources(paths, ordered, format_name or guess_format(file.path for file in ordered))


def guess_format(names: Iterable[str]) -> str:
    """Return the format that the extensions of all names agree on. Raises `DedupError` if there is none."""
    first: tuple[str, str] | None = None
    for name in names:
        stem, extension = os.path.splitext(name.lower())
        if extension in _PACKED:
            extension = os.path.splitext(stem)[1]
        guessed = _EXTENSIONS.get(extension)
        if guessed is None:
            raise DedupError(f"The format of '{name}' cannot be guessed from its name. Give --format.")
        if first is not None and first[0] != guessed:
            raise DedupError(f"'{first[1]}' looks like {first[0]} and '{name}' like {guessed}. Give --format.")
        first = first or (guessed, name)
    if first is None:
        raise DedupError("There are no files to guess the format from. Give --format.")
    return first[0]


def _files_of(path: Path) -> Iterator[str]:
    if path.is_file():
        yield str(path)
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (os.path.join(folder, name) for name in names if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _below(folder: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    for root in roots:
        if folder.is_relative_to(root):
            return folder.relative_to(root).parts
    return ()
