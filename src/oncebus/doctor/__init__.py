"""`oncebus doctor`: checks Spark, its executors and the place of a ledger before a job depends on them.

`examination` and `probing` talk to Spark, `trial` to storage, `machine` and `reaching` to this machine. The other
modules hold pure decisions about what these found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check"]


def check(spark: SparkSession, ledger: str | None = None, *, seconds: float = 120.0) -> bool:
    """Check a session that exists already, as in a notebook. Print a line for each check.

    Return whether none failed.

    Args:
        spark: The session, classic or of Spark Connect. It is not stopped.
        ledger: The path or URI of a ledger, or of one that you want to create.
        seconds: The time limit for all checks together.
    """
    # Imported late, so that the command can say what is missing if Spark or PyArrow cannot be imported.
    from oncebus.doctor.program import check_session

    return check_session(spark, ledger, seconds)
