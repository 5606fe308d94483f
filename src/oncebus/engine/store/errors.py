"""Errors of the store."""

from __future__ import annotations

from oncebus.engine.store.values import Outcome
from oncebus.values.errors import NO_ROOM, NOT_READY, ErrorKind, OncebusError


class StoreError(OncebusError):
    """The base of the errors that the store raises."""


class StoreFull(StoreError):
    """The disk is full. The transaction was rolled back; retry it when there is space again."""

    kind = ErrorKind.BUSY
    told = NO_ROOM


class StoreBusy(StoreError):
    """The database does not answer, or others hold it for too long. Retry when it is back.

    The transaction was rolled back, unless its commit got no answer.
    """

    kind = ErrorKind.BUSY
    told = NOT_READY


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreMismatch(StoreError):
    """The file is not a store that this version can use."""


class EntryRefused(StoreError):
    """An outbox entry does not continue at the store's position, or contradicts the store's content."""


class SessionLockLost(StoreError):
    """The caller's lock on the session has expired, or is not the current one."""

    kind = ErrorKind.LOST_LOCK


class ChangesRefused(StoreError):
    """The changes of a transaction cannot all be made, so none was. `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"A change of the transaction failed: {outcome.value}.")
        self.outcome = outcome


class SessionCannotBeLocked(StoreError):
    """Another receiver has locked the session."""

    kind = ErrorKind.LOCKED
