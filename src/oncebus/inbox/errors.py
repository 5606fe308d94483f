"""What goes wrong with an inbox."""

from __future__ import annotations

import errno

from oncebus.errors import OncebusError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InboxError(OncebusError):
    """An inbox cannot be used. What was being appended has not been accepted."""


class InboxFull(InboxError):
    """There is no room for it on the disk. The same call works as soon as there is."""


class InboxInUse(InboxError):
    """Another process writes this inbox."""


class InboxDamaged(InboxError):
    """Something that was durable is missing or is not what was once written."""


class RowsRefused(InboxError):
    """The rows cannot be encoded: nothing was written."""


def write_failure(path: str, error: OSError) -> InboxError:
    """The error for a failed write."""
    kind = InboxFull if error.errno in _NO_ROOM else InboxError
    return kind(f"Inbox file '{path}' cannot be written: {error.strerror}")
