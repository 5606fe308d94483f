"""A disk that forgets what was not synced.

Files lie in a real folder, best in memory. The disk replaces the operations of `oncebus.values.disk`, and remembers
what a power cut must keep: the content of a file at its last sync, and the names in a folder at its last sync. `cut`
then keeps, of everything else, what the draw says: lost, kept, torn in the middle, or renamed without its bytes.

SQLite is trusted for its own files: they are not watched, and a cut rolls back to the last commit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from oncebus.values import disk

_TRUSTED = ".db"


class PowerCut(BaseException):
    """The machine is off. No operation of the disk works any more."""


class Disk:
    """The disk of one machine, below one folder.

    `step` is called before each operation. It may raise `PowerCut` or an `OSError`, or let others go on first.
    """

    def __init__(self, folder: Path, chance: Random, step: Callable[[str], None]) -> None:
        self.folder = folder
        self._root = os.fspath(folder)
        self._chance = chance
        self._step = step
        self._graves = folder.with_name(folder.name + ".graves")
        self._graves.mkdir()
        self._synced: dict[int, bytes] = {}
        """The content of each file at its last fsync, by inode."""
        self._names: dict[str, dict[str, tuple[int, str]]] = {}
        """The durable names in each folder: the inode, and where the file can be found if it is gone."""
        self._moved: dict[tuple[str, str], tuple[str, str]] = {}
        """Names that appeared by a rename that is not durable yet, with the names that they had before."""
        self._is_off = False
        self.operations = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Replace the operations of the product's disk in the block."""
        names = ("create", "write", "truncate", "sync_data", "replace", "link", "delete", "delete_folder", "sync")
        with ExitStack() as stack:
            for name in (*names, "add_folder"):
                stack.enter_context(mock.patch.object(disk, name, getattr(self, f"_{name}")))
            yield

    def cut(self) -> None:
        """Lose what was not synced, or a part of it, and come back."""
        for folder, _, _ in list(os.walk(self._root, topdown=True)):
            if os.path.isdir(folder):
                self._settle_names(folder)
        for folder, _, names in os.walk(self._root):
            for name in names:
                if not _is_trusted(name):
                    self._settle_content(os.path.join(folder, name))
        self.keep()

    def keep(self) -> None:
        """Come back with everything that was written: only a process died."""
        shutil.rmtree(self._graves)
        self._graves.mkdir()
        self._synced.clear()
        self._names.clear()
        self._moved.clear()
        self._is_off = False
        for folder, folders, names in os.walk(self._root):
            self._names[folder] = {}
            for name in folders + names:
                self._note_name(folder, name)
            for name in names:
                if not _is_trusted(name):
                    path = os.path.join(folder, name)
                    self._synced[os.stat(path).st_ino] = _content(path)

    def turn_off(self) -> None:
        """Let no operation work any more."""
        self._is_off = True

    # Operations, as in `oncebus.values.disk`. What `_before` raises comes before any effect, except that a write may
    # have come halfway.

    def _before(self, what: str) -> None:
        if self._is_off:
            raise PowerCut
        self.operations += 1
        self._step(what)
        if self._is_off:
            raise PowerCut

    def _create(self, path: Any, pieces: Sequence[Any], mode: int = 0o666) -> None:
        self._before("create")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            self._before("sync")
            self._note_content(descriptor)

    def _write(self, descriptor: int, data: bytes, offset: int) -> None:
        try:
            self._before("write")
        except OSError:
            os.pwrite(descriptor, data[: self._chance.randint(0, len(data))], offset)
            raise
        os.pwrite(descriptor, data, offset)

    def _truncate(self, descriptor: int, size: int) -> None:
        self._before("truncate")
        os.ftruncate(descriptor, size)
        self._note_content(descriptor)

    def _sync_data(self, descriptor: int) -> None:
        self._before("sync")
        self._note_content(descriptor)

    def _sync(self, path: Any) -> None:
        name = os.fspath(path)
        self._before("sync")
        if os.path.isdir(name):
            self._names[name] = {}
            for each in os.listdir(name):
                self._note_name(name, each)
            self._moved = {new: old for new, old in self._moved.items() if new[0] != name}
        else:
            self._synced[os.stat(name).st_ino] = _content(name)

    def _replace(self, path: Any, target: Any) -> None:
        old, new = os.fspath(path), os.fspath(target)
        self._before("rename")
        self._bury(new)
        self._bury(old)
        os.replace(old, new)
        before = self._moved.pop(os.path.split(old), None)
        self._moved[os.path.split(new)] = before or os.path.split(old)

    def _link(self, path: Any, target: Any) -> None:
        self._before("link")
        os.link(path, target)

    def _delete(self, path: Any) -> None:
        self._before("delete")
        self._bury(os.fspath(path))
        with suppress(FileNotFoundError):
            os.unlink(path)

    def _delete_folder(self, path: Any) -> None:
        self._before("delete")
        os.rmdir(path)

    def _add_folder(self, path: Any, mode: int) -> None:
        self._before("mkdir")
        os.mkdir(path, mode)

    # What is durable

    def _note_content(self, descriptor: int) -> None:
        # The file may have lost its name meanwhile.
        self._synced[os.fstat(descriptor).st_ino] = _content(f"/proc/self/fd/{descriptor}")

    def _note_name(self, folder: str, name: str) -> None:
        path = os.path.join(folder, name)
        with suppress(FileNotFoundError):
            self._names[folder][name] = (os.stat(path).st_ino, path)

    def _bury(self, path: str) -> None:
        """Keep a file whose name is about to go, if a cut may bring the name back."""
        folder, name = os.path.split(path)
        durable = self._names.get(folder, {}).get(name)
        if durable is None or not os.path.isfile(path) or os.stat(path).st_ino != durable[0]:
            return
        grave = os.fspath(self._graves / str(len(os.listdir(self._graves))))
        os.link(path, grave)
        self._names[folder][name] = (durable[0], grave)

    def _settle_names(self, folder: str) -> None:
        durable = self._names.get(folder, {})
        current = {name for name in os.listdir(folder) if not _is_trusted(name)}
        moved = {new[1]: old for new, old in self._moved.items() if new[0] == folder}
        for name in sorted(current | {name for name in durable if not _is_trusted(name)}):
            path = os.path.join(folder, name)
            was = durable.get(name)
            is_same = was is not None and name in current and os.stat(path).st_ino == was[0]
            if is_same or self._chance.random() < 0.5:
                continue
            # The change of this name is lost.
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif name in current:
                before = moved.get(name)
                if before is not None and not os.path.lexists(os.path.join(*before)):
                    os.replace(path, os.path.join(*before))
                else:
                    os.unlink(path)
            if was is not None and os.path.isfile(was[1]):
                os.link(was[1], path)

    def _settle_content(self, path: str) -> None:
        content, synced = _content(path), self._synced.get(os.stat(path).st_ino, b"")
        if content == synced:
            return
        draw = self._chance.random()
        if draw < 0.35:
            left = synced
        elif draw < 0.55:
            return
        else:
            pairs = enumerate(zip(content, synced, strict=False))
            same = next((at for at, (one, other) in pairs if one != other), min(len(content), len(synced)))
            until = self._chance.randint(same, max(len(content), same))
            left = content[:until]
            if draw > 0.8:
                # The file has its new length, but not all of its bytes.
                left += bytes(len(content) - until)
            elif len(left) < len(synced) and synced[:same] == content[:same]:
                left += synced[len(left) :]
        with open(path, "wb") as file:
            file.write(left)


def _is_trusted(name: str) -> bool:
    return _TRUSTED in os.path.basename(name)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
