"""Duplicate detection on Spark DataFrames."""

from oncebus.detection.gaps import Gaps
from oncebus.ledger import LedgerBatch
from oncebus.values.extras import explain_missing

try:
    from oncebus.spark.gaps import repeat_gaps
    from oncebus.spark.ledger import Ledger
    from oncebus.spark.metrics import DetectionMetrics
    from oncebus.spark.operator import detect_duplicates
    from oncebus.spark.seeding import BadSeed, Seeded
except ModuleNotFoundError as error:
    raise explain_missing(error, "oncebus.spark") from None

__all__ = [
    "BadSeed",
    "DetectionMetrics",
    "Gaps",
    "Ledger",
    "LedgerBatch",
    "Seeded",
    "detect_duplicates",
    "repeat_gaps",
]
