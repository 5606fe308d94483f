"""Duplicate detection on Spark DataFrames."""

from oncebus.ledger import Ledger, LedgerBatch
from oncebus.spark.metrics import DetectionMetrics
from oncebus.spark.operator import detect_duplicates

__all__ = ["DetectionMetrics", "Ledger", "LedgerBatch", "detect_duplicates"]
