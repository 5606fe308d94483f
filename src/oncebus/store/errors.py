"""What the store refuses, and why."""

from __future__ import annotations

from oncebus.errors import OncebusError


class StoreError(OncebusError):
    """The root of what the store raises."""


class StoreFull(StoreError):
    """The disk has no room. The transaction was rolled back; the same calls succeed once there is room again."""


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreMismatch(StoreError):
    """The file is not a store that this version can use."""


class EntryRefused(StoreError):
    """An outbox entry that does not continue where the store stands, or contradicts what it holds."""


class SessionLockLost(StoreError):
    """The session is not, or no longer, held under the given lock."""


class SessionCannotBeLocked(StoreError):
    """The session is held by another receiver."""
