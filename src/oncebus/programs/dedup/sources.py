"""The source files of a run, and their format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncebus.programs.dedup import DedupError

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
    def partitions(self) -> list[str]:
        """Return the names before `=` in folders like `day=1` between SRC and the files, each once."""
        parents = sorted({Path(file.path).parent for file in self.files})
        names = (name for parent in parents for name in _below(parent, self.given))
        return list(dict.fromkeys(name.partition("=")[0] for name in names if "=" in name[1:]))

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
    # By their real paths: a source may be inside another one, and a link may lead to a file that is there too.
    files: dict[str, SourceFile] = {}
    for path in paths:
        if not path.exists():
            raise DedupError(f"Source '{path}' does not exist.")
        found = {name: SourceFile.at(name) for name in _files_of(path)}
        if not found:
            raise DedupError(f"Source '{path}' contains no files.")
        for name, file in found.items():
            files.setdefault(os.path.realpath(name), file)
    ordered = tuple(sorted(files.values(), key=lambda file: file.path))
    return Sources(paths, ordered, format_name or guess_format(file.path for file in ordered))


def outer_first(folders: Sequence[Path]) -> list[Path]:
    """Return the folders in an order in which a folder is before those inside it."""
    return sorted(folders, key=lambda folder: len(folder.parts))


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without those that are read as a part of another one."""
    real = {folder.resolve(): folder for folder in reversed(folders)}
    return [folder for path, folder in reversed(real.items()) if not any(_reads(other, path) for other in real)]


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
    for folder, folders, names in os.walk(path, followlinks=True, onerror=_refuse):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (os.path.join(folder, name) for name in names if not _is_hidden(name))


def _refuse(error: OSError) -> None:
    """Raise `DedupError` for a folder that cannot be read: without this, its rows would be missing without a word."""
    raise DedupError(f"Source '{error.filename}' cannot be read: {error.strerror}.") from error


def _reads(outer: Path, inner: Path) -> bool:
    is_inside = inner != outer and inner.is_relative_to(outer)
    return is_inside and not any(map(_is_hidden, inner.relative_to(outer).parts))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _below(folder: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    for root in outer_first(roots):
        if folder.is_relative_to(root):
            return folder.relative_to(root).parts
    return ()
