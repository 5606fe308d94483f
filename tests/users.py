"""Lets a test access files as an ordinary user, even if root runs the tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534
_LIBC = ctypes.CDLL(None)


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Check access rights for the block, which do not stop root otherwise.

    Applies to this thread alone, unlike `os.seteuid`: a broker that many tests share runs in another thread.
    """
    if os.geteuid() != 0:
        yield
        return
    _LIBC.setfsuid(_NOBODY)
    try:
        yield
    finally:
        _LIBC.setfsuid(0)
