"""Errors of the inbox."""

from __future__ import annotations

import errno

from oncebus.values.errors import NO_ROOM, NOT_STORABLE, ErrorKind, OncebusError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class InboxError(OncebusError):
    """The inbox cannot be used. Rows that were being appended are not accepted."""


class InboxFull(InboxError):
    """The disk is full. Retry the same call when there is space again."""

    kind = ErrorKind.BUSY
    told = NO_ROOM


class InboxInUse(InboxError):
    """Another process has the inbox open for writing."""


class InboxDamaged(InboxError):
    """Something that was durable is missing or has changed."""


class RowsRefused(InboxError):
    """The rows cannot be encoded: nothing was written."""

    kind = ErrorKind.BAD_REQUEST
    told = NOT_STORABLE


def write_failure(path: str, error: OSError) -> InboxError:
    """Return the error for a failed write."""
    kind = InboxFull if error.errno in _NO_ROOM else InboxError
    return kind(f"Inbox file '{path}' cannot be written: {error.strerror}")
