"""The names of PySpark and of Spark's Java classes that we use although they are not public.

No other module uses such a name. Each function says what we need it for and why no public name does the same. A test
for each name fails when PySpark no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession


def find_java_session(spark: SparkSession) -> Any | None:
    """Return Java's side of a session; None with Spark Connect.

    The public `pyspark.sql.is_remote` tells about the process, and one process may have sessions of both kinds. The
    class of a Connect session can be imported only where the packages of Spark Connect are installed.
    """
    return getattr(spark, "_jsparkSession", None)


def find_query(spark: SparkSession, query: str) -> Any | None:
    """Return Java's side of a streaming query that runs in any session of this Spark application. None if none does.

    The public `streams.active` lists the queries of one session. Not for sessions of Spark Connect.
    """
    session: Any = find_java_session(spark)
    java: Any = spark._jvm
    return session.sharedState().activeStreamingQueries().get(java.java.util.UUID.fromString(query))


def count_executors(spark: SparkSession) -> int:
    """Return how many executors have registered with the driver. Not for sessions of Spark Connect.

    The public `StatusTracker` of PySpark has no method for executors.
    """
    # The driver counts as an executor here.
    return len(_java_context(spark).statusTracker().getExecutorInfos()) - 1


def open_status_store(spark: SparkSession) -> Any:
    """Return Java's store of all stages, with the rows that each has read. Not for sessions of Spark Connect.

    The public `StatusTracker` of PySpark counts tasks and no rows. The REST API has the rows, but only while the web
    pages of Spark are served.
    """
    return _java_context(spark).statusStore()


def detach_gateway() -> Any | None:
    """Return the connection to the Java that PySpark started, and let PySpark forget it. None if there is none.

    Its `proc` is the Java process. The public `SparkContext.stop` leaves Java running, and PySpark would go on to use
    a connection whose Java has exited.
    """
    gateway = SparkContext._gateway
    # A Java that something else started has no `proc`, and is not ours to stop.
    if getattr(gateway, "proc", None) is None:
        return None
    SparkContext._gateway = SparkContext._jvm = None
    return gateway


def pickle_function(function: Callable[..., Any]) -> bytes:
    """Pickle a function as Spark does, one that is defined inside another with its code.

    The public `pickle` takes only functions that the reader can import.
    """
    serializer: Any = CloudPickleSerializer
    pickled: bytes = serializer().dumps(function)
    return pickled


def _java_context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc()
