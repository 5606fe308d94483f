"""Duplicate detection on Spark DataFrames."""

from oncebus.ledger import Ledger, LedgerBatch
from oncebus.spark.operator import detect_duplicates

__all__ = ["Ledger", "LedgerBatch", "detect_duplicates"]
