"""Output folders that are complete or can be rebuilt, no matter when a run is killed.

A folder that a run writes to contains:

    part-*             the rows
    _oncebus.json      the marker: which run wrote the folder, and how far it got
    _oncebus/staging-* files that are being written; deleted by the next run

The marker exists before the first row. Once all rows are in place, one rename replaces it by a marker in the state
`written`. Only then is the ledger committed. The marker then says so itself, because a ledger forgets after many other
runs. So at the next start, marker and ledger together show one of three cases:
a finished run, which must not be repeated (the ledger knows its ids, so all its rows would be duplicates); a failed
run, whose files can all be deleted; or foreign files, which must not be touched.

With a folder for duplicates there are two markers with the same token. The one in the folder of accepted rows decides:
it is the first to be created, the last to become `written`, and the last to be deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from oncebus.values import disk
from oncebus.values.errors import OncebusError

MARKER = "_oncebus.json"
STATE = "_oncebus"
_STAGING = "staging-"
_OURS = re.compile(r"part-.*|_SUCCESS|_oncebus\.json(\.new)?|_oncebus|\..*\.crc")


class OutputError(OncebusError):
    """The output folder contains something that this run must not replace, or is in use."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The record of a run in the folders it writes to.

    A run with a `generation` is finished once the ledger commits it. A run without one needs no ledger any more.
    """

    state: Literal["started", "written", "follow"]
    token: str
    fingerprint: str
    arguments: dict[str, Any]
    ledger: str | None = None
    generation: dict[str, Any] | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the content of the marker's file."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Marker:
        """Parse the content of a marker's file. Raises `ValueError` or `TypeError` for anything else."""
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The content of an output folder: the marker if any, the part files of oncebus, and the first foreign file."""

    folder: Path
    marker: Marker | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    foreign: str | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the folder is empty, or contains only an abandoned staging folder."""
        return self.marker is None and self.foreign is None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run must do: report the result of the earlier run `finished`, or write its own rows.

    Before writing, the run deletes the contents of the folders in `leftovers`. It deletes the contents of those in
    `replacing` only when its own rows are ready.
    """

    finished: Marker | None = None
    leftovers: tuple[Path, ...] = ()
    replacing: tuple[Path, ...] = ()


def fingerprint(arguments: Mapping[str, Any], files: Sequence[tuple[str, int, int]]) -> str:
    """Return a digest of everything that affects a run's result: arguments, and path, size and time of each file."""
    return hashlib.sha256(json.dumps([arguments, files], sort_keys=True).encode()).hexdigest()


def inspect(folder: Path) -> OutputFolder:
    """Return the content of an output folder. Raises `OutputError` if it is not a folder."""
    if not folder.exists():
        return OutputFolder(folder)
    if not folder.is_dir():
        raise OutputError(f"Output '{folder}' is not a folder.")
    names = sorted(os.listdir(folder))
    marker = None
    if MARKER in names:
        try:
            marker = Marker.from_json((folder / MARKER).read_bytes())
        except (ValueError, TypeError):
            return OutputFolder(folder, foreign=MARKER)
    own = [name for name in names if _is_ours(folder, name, marker)]
    foreign = next((name for name in names if name not in own), None)
    files = {name: (folder / name).stat().st_size for name in own if name.startswith("part-")}
    return OutputFolder(folder, marker, files, foreign)


def decide(
    out: OutputFolder,
    duplicates: OutputFolder | None,
    wanted: str,
    is_committed: Callable[[Marker], bool],
    *,
    overwrite: bool,
) -> RunPlan:
    """Return what a run with the fingerprint `wanted` must do, given the content of its folders.

    Raises `OutputError` if the run would replace something without `overwrite`.
    """
    marker = out.marker
    is_failed = marker is not None and _has_failed(marker, is_committed)
    if marker is not None and not is_failed and marker.fingerprint == wanted:
        if all(out.files.get(name) == size for name, size in marker.files.items()):
            return RunPlan(finished=marker)
        if not overwrite:
            broken = next(name for name, size in marker.files.items() if out.files.get(name) != size)
            raise OutputError(
                f"Output '{out.folder}' is from a finished run with these arguments, but '{broken}' is missing or "
                "changed. Give a new folder or --overwrite."
            )
    leftovers: list[Path] = []
    replacing: list[Path] = []
    for found in (duplicates, out):
        if found is None or found.is_empty:
            continue
        is_ours = is_failed and found.marker is not None and marker is not None and found.marker.token == marker.token
        if is_ours and found.foreign is None:
            leftovers.append(found.folder)
        elif overwrite:
            replacing.append(found.folder)
        else:
            raise OutputError(_refusal(found, is_ours=is_ours))
    return RunPlan(leftovers=tuple(leftovers), replacing=tuple(replacing))


def decide_follow(found: OutputFolder, arguments: Mapping[str, Any], *, overwrite: bool) -> Marker | None:
    """Return the marker of the stream to continue, or None to start a new stream.

    Raises `OutputError` if the folder contains something else, or if other arguments were used, without `overwrite`.
    """
    marker = found.marker
    if marker is not None and marker.state == "follow":
        changed = [name for name in arguments if marker.arguments.get(name) != arguments[name]]
        if not changed:
            return marker
        if not overwrite:
            name = changed[0]
            raise OutputError(
                f"Output '{found.folder}' was followed with --{name} {_as_text(marker.arguments.get(name))}, not "
                f"{_as_text(arguments[name])}. Use the same arguments, or give a new folder."
            )
    elif not found.is_empty and not overwrite:
        raise OutputError(_refusal(found, is_ours=False))
    return None


class Outputs:
    """The folders of one run, locked from `__enter__` to `__exit__`. The first is the folder of accepted rows."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self.token = uuid.uuid4().hex
        self._locks = ExitStack()
        self._made: list[Path] = []
        self._marker: Marker | None = None
        self._replacing: tuple[Path, ...] = ()

    def __enter__(self) -> Outputs:
        with ExitStack() as locks:
            # If one of the folders cannot be locked, delete those that were created for this run.
            locks.callback(self._remove_made)
            for folder in self.folders:
                self._lock(folder, locks)
            self._locks = locks.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for folder in self.folders:
            _remove_staging(folder)
        self._locks.close()

    def find(self) -> list[OutputFolder]:
        """Return the current content of the folders."""
        return [inspect(folder) for folder in self.folders]

    def start(self, decision: RunPlan, fingerprint: str, arguments: Mapping[str, Any], ledger: str | None) -> None:
        """Delete leftovers and mark the folders as being written. Rows to be replaced stay until `publish`."""
        for folder in decision.leftovers:
            clear(folder)
        for folder in self.folders:
            _remove_staging(folder)
        self._marker = Marker("started", self.token, fingerprint, dict(arguments), ledger)
        self._replacing = decision.replacing
        if not self._replacing:
            self._mark(self._marker)

    def staging(self, folder: Path) -> Path:
        """Return the path to write a folder's rows to before `publish`.

        It is inside the folder and does not exist yet.
        """
        return folder / STATE / f"{_STAGING}{self.token}"

    def publish(self, summary: Mapping[str, Any], generation: Mapping[str, Any] | None) -> Marker:
        """Move the staged rows into place. The run is finished once its generation, if any, is committed."""
        if self._marker is None:
            raise RuntimeError("publish before start")
        if self._replacing:
            self._mark(self._marker)
        for folder in self._replacing:
            clear(folder, everything=True, keep=(MARKER,), keep_staging=self.staging(folder).name)
        moved = [move_parts(self.staging(folder), folder) for folder in self.folders]
        written = Marker(
            "written",
            self.token,
            self._marker.fingerprint,
            self._marker.arguments,
            self._marker.ledger,
            dict(generation) if generation is not None else None,
            dict(summary),
            moved[0],
        )
        self._mark(written, reverse=True)
        return written

    def finish(self, written: Marker) -> None:
        """Record that the generation is committed. The ledger knows it too, but not for ever."""
        write_marker(self.folders[0], replace(written, generation=None))

    def roll_back(self) -> None:
        """Delete everything that this run has written. Do not call this if the run's generation may be committed."""
        for folder in reversed(self.folders):
            found = inspect(folder)
            if found.marker is not None and found.marker.token == self.token:
                clear(folder)

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            # Fails for a folder that is not empty, which must stay.
            with suppress(OSError):
                folder.rmdir()

    def _mark(self, marker: Marker, *, reverse: bool = False) -> None:
        for folder in reversed(self.folders) if reverse else self.folders:
            write_marker(folder, marker)

    def _lock(self, folder: Path, locks: ExitStack) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            # The folder must be durable before its rows: the ledger remembers them as soon as they are in place.
            disk.make_folder(folder)
            self._made.extend(reversed(missing))
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, NotADirectoryError) as error:
            raise OutputError(f"Output '{folder}' is not a folder.") from error
        locks.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"Output '{folder}' is being written by another oncebus process. Wait for it, or stop it."
            ) from error


def write_marker(folder: Path, marker: Marker) -> None:
    """Write the marker to the folder atomically and durably, replacing any other."""
    new = folder / (MARKER + ".new")
    disk.delete(new)
    disk.create(new, [marker.to_json()])
    disk.replace(new, folder / MARKER)
    disk.sync(folder)


def move_parts(staging: Path, folder: Path, prefix: str = "part-") -> dict[str, int]:
    """Move Spark's part files into the folder, durably, and return their sizes by name.

    `prefix` replaces `part-` in their names.
    """
    moved = {}
    for name in sorted(os.listdir(staging)):
        if name.startswith("part-"):
            disk.sync(staging / name)
            target = folder / (prefix + name.removeprefix("part-"))
            moved[target.name] = (staging / name).stat().st_size
            disk.replace(staging / name, target)
    disk.sync(folder)
    shutil.rmtree(staging)
    return moved


def clear(folder: Path, *, everything: bool = False, keep: Sequence[str] = (), keep_staging: str = "") -> None:
    """Delete the files of oncebus in a folder, or all files with `everything`.

    The marker is deleted last, because it shows that the rest belongs to oncebus.
    """
    names = [name for name in os.listdir(folder) if name not in keep and (everything or _OURS.fullmatch(name))]
    for name in sorted(names, key=lambda name: name == MARKER):
        path = folder / name
        if name == STATE and keep_staging:
            for inner in path.iterdir():
                if inner.name != keep_staging:
                    _delete(inner)
        else:
            _delete(path)


def _has_failed(marker: Marker, is_committed: Callable[[Marker], bool]) -> bool:
    if marker.state == "written":
        return marker.generation is not None and not is_committed(marker)
    return marker.state == "started"


def _is_ours(folder: Path, name: str, marker: Marker | None) -> bool:
    if marker is not None:
        return _OURS.fullmatch(name) is not None
    if name == MARKER + ".new":
        return True
    # This is all that a run leaves if it is killed before it writes its marker.
    return name == STATE and all(inner.startswith(_STAGING) for inner in os.listdir(folder / STATE))


def _refusal(found: OutputFolder, *, is_ours: bool) -> str:
    if found.foreign is not None and (found.marker is None or is_ours):
        content = f"'{found.foreign}', which is not from this run"
    elif found.marker is not None and found.marker.state == "follow":
        content = "the output of --follow"
    else:
        content = "the result of another run (other arguments, or other source files)"
    return f"Output '{found.folder}' contains {content}. Give a new folder or --overwrite."


def _as_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "(none)" if value is None else str(value)


def _remove_staging(folder: Path) -> None:
    state = folder / STATE
    if state.is_dir():
        for inner in state.iterdir():
            if inner.name.startswith(_STAGING):
                _delete(inner)
        with suppress(OSError):
            state.rmdir()


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # The Spark of a killed run may still write there for a moment.
        shutil.rmtree(path, ignore_errors=True)
    else:
        disk.delete(path)
