"""Output folders that are whole or can be made again, at whatever instant a run is killed.

A folder that a run writes to holds:

    part-*             the rows
    _oncebus.json      the marker: who wrote it, and how far it came
    _oncebus/staging-* what is being written; removed by the next run

The marker is there before the first row and is replaced, in one rename, once all rows are in place (`written`). Only
then is the ledger committed. So on the next start the marker tells, together with the ledger, which of three it was: a
finished run, which must not be done again (its ids are known now, so all its rows would be duplicates); a run that
failed, of which everything can be deleted; or something else, which is not ours to touch.

With a folder for duplicates there are two markers of one token. The one in the folder of accepted rows decides: it is
the first to be made, the last to be `written`, and the last to be deleted.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from oncebus.errors import OncebusError
from oncebus.files import make_folder

MARKER = "_oncebus.json"
STATE = "_oncebus"
_STAGING = "staging-"
_OURS = re.compile(r"part-.*|_SUCCESS|_oncebus\.json(\.new)?|_oncebus|\..*\.crc")


class OutputError(OncebusError):
    """The output folder holds something that this run must not replace, or is in use."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a run says of itself in the folders it writes to. It counts once the ledger has its `generation`, if any."""

    state: Literal["started", "written", "follow"]
    token: str
    fingerprint: str
    arguments: dict[str, Any]
    ledger: str | None = None
    generation: dict[str, Any] | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The marker as its file holds it."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Marker:
        """Read back what `to_json` wrote; `ValueError` or `TypeError` if it is something else."""
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Found:
    """What is in an output folder: a marker or none, what oncebus has written beside it, and what it has not."""

    folder: Path
    marker: Marker | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    foreign: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but, at most, an abandoned staging folder."""
        return self.marker is None and self.foreign is None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: tell what a `finished` run did, or write.

    `leftovers` are deleted before that; what is in the folders of `replacing`, at the last moment.
    """

    finished: Marker | None = None
    leftovers: tuple[Path, ...] = ()
    replacing: tuple[Path, ...] = ()


def fingerprint(arguments: Mapping[str, Any], files: Sequence[tuple[str, int, int]]) -> str:
    """A digest of all that decides what a run writes: its arguments and the path, size and time of each file."""
    return hashlib.sha256(json.dumps([arguments, files], sort_keys=True).encode()).hexdigest()


def look(folder: Path) -> Found:
    """What is in the folder."""
    if not folder.exists():
        return Found(folder)
    if not folder.is_dir():
        raise OutputError(f"Output '{folder}' is not a folder.")
    names = sorted(os.listdir(folder))
    marker = None
    if MARKER in names:
        try:
            marker = Marker.from_json((folder / MARKER).read_bytes())
        except (ValueError, TypeError):
            return Found(folder, foreign=MARKER)
    own = [name for name in names if _is_ours(folder, name, marker)]
    foreign = next((name for name in names if name not in own), None)
    files = {name: (folder / name).stat().st_size for name in own if name.startswith("part-")}
    return Found(folder, marker, files, foreign)


def decide(
    out: Found,
    duplicates: Found | None,
    wanted: str,
    is_committed: Callable[[Marker], bool],
    *,
    overwrite: bool,
) -> Decision:
    """What a run with the fingerprint `wanted` has to do, given what it finds. Raises `OutputError`."""
    marker = out.marker
    is_failed = marker is not None and _has_failed(marker, is_committed)
    if marker is not None and not is_failed and marker.fingerprint == wanted:
        if all(out.files.get(name) == size for name, size in marker.files.items()):
            return Decision(finished=marker)
        if not overwrite:
            gone = next(name for name, size in marker.files.items() if out.files.get(name) != size)
            raise OutputError(
                f"Output '{out.folder}' is of a finished run of these arguments, but '{gone}' is missing or changed. "
                "Give a new folder or --overwrite."
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
    return Decision(leftovers=tuple(leftovers), replacing=tuple(replacing))


def decide_follow(found: Found, arguments: Mapping[str, Any], *, overwrite: bool) -> Marker | None:
    """The marker of the stream to continue, or None to start one in a folder that is empty or to be overwritten."""
    marker = found.marker
    if marker is not None and marker.state == "follow":
        changed = [name for name in arguments if marker.arguments.get(name) != arguments[name]]
        if not changed:
            return marker
        if not overwrite:
            name = changed[0]
            raise OutputError(
                f"Output '{found.folder}' was followed with --{name} {_shown(marker.arguments.get(name))}, not "
                f"{_shown(arguments[name])}. Use the same arguments, or give a new folder."
            )
    elif not found.is_empty and not overwrite:
        raise OutputError(_refusal(found, is_ours=False))
    return None


class Outputs:
    """The folders of one run, locked from `__enter__` to `__exit__`. The first is that of the accepted rows."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self.token = uuid.uuid4().hex
        self._locks = ExitStack()
        self._made: list[Path] = []
        self._marker: Marker | None = None
        self._replacing: tuple[Path, ...] = ()

    def __enter__(self) -> Outputs:
        with ExitStack() as locks:
            # If one of the folders cannot be had, none that was made for this run stays.
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

    def find(self) -> list[Found]:
        """What is in the folders now."""
        return [look(folder) for folder in self.folders]

    def start(self, decision: Decision, fingerprint: str, arguments: Mapping[str, Any], ledger: str | None) -> None:
        """Delete leftovers and mark the folders as being written. What is to be replaced stays until `publish`."""
        for folder in decision.leftovers:
            clear(folder)
        for folder in self.folders:
            _remove_staging(folder)
        self._marker = Marker("started", self.token, fingerprint, dict(arguments), ledger)
        self._replacing = decision.replacing
        if not self._replacing:
            self._mark(self._marker)

    def staging(self, folder: Path) -> Path:
        """Where to write the rows of a folder until `publish`: a path below it that is not there yet."""
        return folder / STATE / f"{_STAGING}{self.token}"

    def publish(self, summary: Mapping[str, Any], generation: Mapping[str, Any] | None) -> Marker:
        """Move the staged rows into place. The run is finished once the generation, if any, is committed."""
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

    def roll_back(self) -> None:
        """Delete what this run has written, marker and all. Not for a run whose generation may be committed."""
        for folder in reversed(self.folders):
            found = look(folder)
            if found.marker is not None and found.marker.token == self.token:
                clear(folder)

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            # Only if nothing was put there.
            with suppress(OSError):
                folder.rmdir()

    def _mark(self, marker: Marker, *, reverse: bool = False) -> None:
        for folder in reversed(self.folders) if reverse else self.folders:
            write_marker(folder, marker)

    def _lock(self, folder: Path, locks: ExitStack) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            # Durable before its rows are: the ledger remembers them as soon as they are in place.
            make_folder(folder)
            self._made.extend(reversed(missing))
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, NotADirectoryError) as error:
            raise OutputError(f"Output '{folder}' is not a folder.") from error
        locks.callback(os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"Output '{folder}' is being written by another oncebus. Wait for it, or stop it."
            ) from error


def write_marker(folder: Path, marker: Marker) -> None:
    """Put the marker into the folder, in place of any other, in one step."""
    new = folder / (MARKER + ".new")
    with new.open("wb") as file:
        file.write(marker.to_json())
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / MARKER)
    _sync(folder)


def move_parts(staging: Path, folder: Path, prefix: str = "part-") -> dict[str, int]:
    """Move the part files that Spark has written into the folder, durably. What `part-` becomes is in `prefix`."""
    moved = {}
    for name in sorted(os.listdir(staging)):
        if name.startswith("part-"):
            _sync(staging / name)
            target = folder / (prefix + name.removeprefix("part-"))
            moved[target.name] = (staging / name).stat().st_size
            (staging / name).replace(target)
    _sync(folder)
    shutil.rmtree(staging)
    return moved


def clear(folder: Path, *, everything: bool = False, keep: Sequence[str] = (), keep_staging: str = "") -> None:
    """Delete what oncebus has written to the folder, or all, the marker last: until then it is known whose it is."""
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
    # A run that was to overwrite, or was killed before its marker was there, leaves no more than this.
    return name == STATE and all(inner.startswith(_STAGING) for inner in os.listdir(folder / STATE))


def _refusal(found: Found, *, is_ours: bool) -> str:
    if found.foreign is not None and (found.marker is None or is_ours):
        holds = f"holds '{found.foreign}', which is not of this run"
    elif found.marker is not None and found.marker.state == "follow":
        holds = "holds what --follow wrote"
    else:
        holds = "holds the result of another run (other arguments, or other source files)"
    return f"Output '{found.folder}' {holds}. Give a new folder or --overwrite."


def _shown(value: object) -> str:
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
        # A killed run's Spark may be writing there for a moment still.
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
