"""Waits until another process changes a folder, without polling if the kernel can report the change.

Linux (inotify) reports what any process on this kernel does in a folder, in any container and on any file system. It
does not report what other machines do in a shared folder. So the process that changes a folder writes the id of its
kernel to a signature file. The process that waits polls, unless it finds the id of its own kernel there. Neither needs
the other to be running, and nothing has to be cleaned up after a crash.
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
"""The interval for reading the signature file, because the writer may restart on another machine."""

# From <sys/inotify.h>.
_MODIFIED = 0x2
_MOVED_TO = 0x80
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_READ_AT_ONCE = 1 << 16


@functools.cache
def this_kernel() -> str:
    """Return an id of the running kernel, the same in all its containers; empty if it is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Watch:
    """Waits for files that are renamed into a folder, which need not exist yet.

    If `overwritten` is given, the watch also waits until that file in the folder is overwritten in place. `signature`
    is the signature file, which the process that makes the changes writes with `sign`.

    A wait may end early, for example when it polls, so the caller must check the folder after each wait. A change
    between a check and the wait that follows it is not missed.
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
        """Return when something has changed, or after `seconds`."""
        if self._descriptor is not None and self._is_notified():
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            poll.poll(max(seconds, 0) * 1000)
        else:
            time.sleep(min(max(seconds, 0), POLL_SECONDS))
        self._rearm()

    async def wait_in_loop(self, seconds: float, *, poll: float = POLL_SECONDS) -> None:
        """Do the same as `wait` in an event loop.

        `poll` is the polling interval if the kernel does not report changes.
        """
        if self._descriptor is not None and self._is_notified():
            loop = asyncio.get_running_loop()
            changed = asyncio.Event()
            loop.add_reader(self._descriptor, changed.set)
            try:
                async with asyncio.timeout(seconds):
                    await changed.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(self._descriptor)
        else:
            await asyncio.sleep(min(seconds, poll))
        self._rearm()

    def close(self) -> None:
        """Stop watching. Later waits poll."""
        if self._descriptor is not None:
            self._finalizer()
            self._descriptor = None

    def _is_notified(self) -> bool:
        """Return whether the kernel reports the changes."""
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
            # A folder or file that was replaced needs a new watch. Add it now, before the caller checks: the kernel
            # reports all changes from here on.
            self._is_armed = self._arm()

    def _arm(self) -> bool:
        if self._descriptor is None or not _add(self._descriptor, self._folder, _MOVED_TO):
            return False
        return self._overwritten is None or _add(self._descriptor, self._overwritten, _MODIFIED)


def sign(path: str | os.PathLike[str], *, is_local: bool = True) -> None:
    """Write a signature file: from now on only processes on this kernel change the folder.

    Without `is_local`, others may too.
    """
    # If the file cannot be written, the waiting processes poll.
    with suppress(OSError):
        Path(path).write_text(this_kernel() if is_local else "")


def _is_signed_here(path: str) -> bool:
    try:
        return this_kernel() != "" and Path(path).read_text() == this_kernel()
    except (OSError, UnicodeDecodeError):
        return False


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return the C library; None if it has no inotify."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


def _new_descriptor() -> int | None:
    library = _library()
    # This fails if the user has reached the limit of inotify instances. The watch polls then.
    descriptor = -1 if library is None else int(library.inotify_init1(_FLAGS))
    return None if descriptor < 0 else descriptor


def _add(descriptor: int, path: str, mask: int) -> bool:
    library = _library()
    assert library is not None
    add: Callable[..., int] = library.inotify_add_watch
    return add(descriptor, os.fsencode(path), mask) >= 0
