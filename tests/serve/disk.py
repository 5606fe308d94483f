"""A disk of its own, small enough to be filled, for the processes of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEGABYTES = 256
_MOUNT = 'mount -t tmpfs -o size="$1"m none "$2" && echo mounted && exec cat'


class SmallDisk:
    """A file system in memory, mounted at `path` in a mount namespace that a process of ours holds open.

    Nothing is mounted for anybody else, no rights are needed beyond those to make such a namespace, and all of it is
    gone with the process, however that ends. `within` puts a command into the namespace; `seen` is the path from here.
    """

    def __init__(self, path: Path, holder: int) -> None:
        self.path = path
        self.within = ["nsenter", "--preserve-credentials", "--user", "--mount", f"--target={holder}"]
        self.seen = Path(f"/proc/{holder}/root{path}")
        self._filler = self.seen / "filler"

    def fill(self) -> None:
        """Leave no room at all."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """A disk for the block. Raises `AssertionError` with the reason where none can be had."""
    path.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", str(MEGABYTES), str(path)]
    try:
        holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise AssertionError(f"No small disk can be mounted here: {error}") from error
    with holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "mounted\n":
            raise AssertionError(
                f"No small disk can be mounted here: {holder.stderr.read().strip()}. The tests need the right to make "
                "user and mount namespaces (`unshare --user --map-root-user --mount` must work)."
            )
        try:
            yield SmallDisk(path, holder.pid)
        finally:
            holder.kill()
