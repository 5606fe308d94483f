"""A small disk that a test can fill up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEGABYTES = 256
_MOUNT = 'mount -t tmpfs -o size="$1"m none "$2" && echo mounted && exec cat'


class SmallDisk:
    """A file system in memory, mounted at `path` in a mount namespace that a helper process holds open.

    Only processes in the namespace see the mount, it needs no rights except to create the namespace, and it disappears
    with the helper process. `within` is the command that enters the namespace. `seen` is the path from outside.
    """

    def __init__(self, path: Path, holder: int) -> None:
        self.path = path
        self.within = ["nsenter", "--preserve-credentials", "--user", "--mount", f"--target={holder}"]
        self.seen = Path(f"/proc/{holder}/root{path}")
        self._filler = self.seen / "filler"

    def fill(self) -> None:
        """Fill the disk completely."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a disk for a block. Raises `AssertionError` with the reason if that is not possible."""
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
