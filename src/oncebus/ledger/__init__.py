"""What was accepted and is not yet forgotten, in immutable files."""

from oncebus.ledger.batch import LedgerBatch
from oncebus.ledger.generations import CheckpointTooOld, Generation, LedgerInUse, Owner
from oncebus.ledger.ledger import Ledger, LedgerMismatch, LedgerSummary, Writer
from oncebus.ledger.run import CorruptRun
from oncebus.ledger.storage import StorageError

__all__ = [
    "CheckpointTooOld",
    "CorruptRun",
    "Generation",
    "Ledger",
    "LedgerBatch",
    "LedgerInUse",
    "LedgerMismatch",
    "LedgerSummary",
    "Owner",
    "StorageError",
    "Writer",
]
