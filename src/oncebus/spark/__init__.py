"""Duplicate detection on Spark DataFrames."""

from oncebus.ledger import Ledger, LedgerBatch
from oncebus.values.extras import explain_missing

try:
    from oncebus.spark.metrics import DetectionMetrics
    from oncebus.spark.operator import detect_duplicates
except ModuleNotFoundError as error:
    raise explain_missing(error, "oncebus.spark") from None

__all__ = ["DetectionMetrics", "Ledger", "LedgerBatch", "detect_duplicates"]
