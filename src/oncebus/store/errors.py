"""Errors of the store."""

from __future__ import annotations

from oncebus.errors import OncebusError


class StoreError(OncebusError):
    """The base of the errors that the store raises."""


class StoreFull(StoreError):
    """The disk is full. The transaction was rolled back; retry it when there is space again."""


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreMismatch(StoreError):
    """The file is not a store that this version can use."""


class EntryRefused(StoreError):
    """An outbox entry does not continue at the store's position, or contradicts what the store holds."""


class SessionLockLost(StoreError):
    """The session is not locked under the given lock, or not any more."""


class SessionCannotBeLocked(StoreError):
    """Another receiver has locked the session."""
