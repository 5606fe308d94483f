"""Remembers accepted keys in immutable files until their window is over."""

from oncebus.ledger.batch import LedgerBatch, NotRepeatable
from oncebus.ledger.check import LedgerCheck
from oncebus.ledger.commits import BadCheckpoint, Committed
from oncebus.ledger.description import LedgerMismatch, LedgerNotShared
from oncebus.ledger.generations import CheckpointTooOld, Generation, LedgerInUse
from oncebus.ledger.keys import BadKey
from oncebus.ledger.ledger import Ledger
from oncebus.ledger.listing import Listing
from oncebus.ledger.names import LANES, NotPartitioned
from oncebus.ledger.overview import LedgerOverview, LedgerSummary
from oncebus.ledger.owner import Owner
from oncebus.ledger.run import CorruptRun
from oncebus.ledger.sightings import Memory, Sighting
from oncebus.ledger.storage import StorageError
from oncebus.ledger.task_ledger import TaskLedger
from oncebus.ledger.writers import Writer

__all__ = [
    "LANES",
    "BadCheckpoint",
    "BadKey",
    "CheckpointTooOld",
    "Committed",
    "CorruptRun",
    "Generation",
    "Ledger",
    "LedgerBatch",
    "LedgerCheck",
    "LedgerInUse",
    "LedgerMismatch",
    "LedgerNotShared",
    "LedgerOverview",
    "LedgerSummary",
    "Listing",
    "Memory",
    "NotPartitioned",
    "NotRepeatable",
    "Owner",
    "Sighting",
    "StorageError",
    "TaskLedger",
    "Writer",
]
