"""Waiting until another process changes a folder, without polling where the kernel can tell.

Linux tells (inotify) what any process of this kernel does in a folder, in whatever container and on whatever file
system. It does not tell what other machines do in a shared folder. So the process that changes a folder signs a file
with the kernel that it runs on, and the process that waits polls unless it finds its own kernel there. Neither needs
the other to be alive, and nothing has to be cleaned up after a crash.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import select
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.004
CHECK_SECONDS = 1.0
"""How often to look who makes the changes: it may have been started anew elsewhere."""

# Of <sys/inotify.h>.
_MODIFIED = 0x2
_MOVED_TO = 0x80
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_READ_AT_ONCE = 1 << 16


@functools.cache
def this_kernel() -> str:
    """Names the running kernel, the same in all its containers; empty where that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Watch:
    """Waits for changes of a folder, which need not exist yet: for files that are renamed into it.

    Also, if given, for a file in it that is `overwritten` in place. `signature` is the file with the kernel of those
    who make the changes.

    A wait may end early, and one that polls always does: look again each time. No change is missed between a look and
    the wait that follows it.
    """

    def __init__(
        self, folder: str | os.PathLike[str], signature: str | os.PathLike[str], overwritten: str | None = None
    ) -> None:
        self._folder = os.path.abspath(folder)
        self._signature = os.fspath(signature)
        self._overwritten = None if overwritten is None else os.path.join(self._folder, overwritten)
        self._descriptor = _new_descriptor()
        if self._descriptor is not None:
            self._finalizer = weakref.finalize(self, os.close, self._descriptor)
        self._is_armed = self._arm()
        self._is_signed = False
        # On the clock of `time.monotonic`.
        self._next_check = float("-inf")

    def wait(self, seconds: float) -> None:
        """Return when something has changed, or after so many seconds."""
        if self._descriptor is not None and self._is_told():
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            poll.poll(max(seconds, 0) * 1000)
        else:
            time.sleep(min(max(seconds, 0), POLL_SECONDS))
        self._rearm()

    async def wait_in_loop(self, seconds: float, *, poll: float = POLL_SECONDS) -> None:
        """Do the same in an event loop. `poll` is how often to look where the kernel does not tell."""
        if self._descriptor is not None and self._is_told():
            loop = asyncio.get_running_loop()
            told = asyncio.Event()
            loop.add_reader(self._descriptor, told.set)
            try:
                async with asyncio.timeout(seconds):
                    await told.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(self._descriptor)
        else:
            await asyncio.sleep(min(seconds, poll))
        self._rearm()

    def close(self) -> None:
        """Wait no more."""
        if self._descriptor is not None:
            self._finalizer()
            self._descriptor = None

    def _is_told(self) -> bool:
        if not self._is_armed:
            return False
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            self._is_signed = _is_signed_here(self._signature)
        return self._is_signed

    def _rearm(self) -> None:
        if self._descriptor is not None:
            with suppress(BlockingIOError):
                while os.read(self._descriptor, _READ_AT_ONCE):
                    pass
            # A folder or a file that was replaced has to be watched anew. Before the look that follows: what changes
            # from here on is told.
            self._is_armed = self._arm()

    def _arm(self) -> bool:
        if self._descriptor is None or not _add(self._descriptor, self._folder, _MOVED_TO):
            return False
        return self._overwritten is None or _add(self._descriptor, self._overwritten, _MODIFIED)


def sign(path: str | os.PathLike[str], *, is_local: bool = True) -> None:
    """Note that processes of this kernel make all changes from now on; or, unless `is_local`, of other machines too."""
    # Where it cannot be written, those who wait poll.
    with suppress(OSError):
        Path(path).write_text(this_kernel() if is_local else "")


def _is_signed_here(path: str) -> bool:
    try:
        return this_kernel() != "" and Path(path).read_text() == this_kernel()
    except (OSError, UnicodeDecodeError):
        return False


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The functions of the C library, where it has them."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


def _new_descriptor() -> int | None:
    library = _library()
    # Fails where the user has as many as the system allows: then there is still polling.
    descriptor = -1 if library is None else int(library.inotify_init1(_FLAGS))
    return None if descriptor < 0 else descriptor


def _add(descriptor: int, path: str, mask: int) -> bool:
    library = _library()
    assert library is not None
    add: Callable[..., int] = library.inotify_add_watch
    return add(descriptor, os.fsencode(path), mask) >= 0
