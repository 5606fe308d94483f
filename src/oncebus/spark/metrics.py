"""Shows what detection did: counts in the progress of a query, and metrics for Prometheus."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

from oncebus.ledger import Ledger, LedgerSummary
from oncebus.spark.columns import IS_DUPLICATE, LATE, WITHOUT_KEY
from oncebus.values.durations import SECOND
from oncebus.values.errors import OncebusError

log = logging.getLogger(__name__)

_COUNTS = {
    "rows": "Rows that detect_duplicates checked.",
    "new": "Rows that were new.",
    "duplicates": "Rows that were duplicates.",
    "late": "Rows so late that a key of their time was forgotten already.",
    "without_key": "Rows with a null in their key, which are always new.",
}
_GAUGES = {
    "ids": "Ids in the ledger, including forgotten ones that are not deleted yet.",
    "bytes": "Size of the ledger in bytes.",
    "runs": "Files of accepted keys in the ledger.",
}
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


def observe_counts(checked: DataFrame, observation: str | Observation) -> DataFrame:
    """Return the result with its counts observed, and without the helper columns that are counted."""
    counts = {
        "rows": F.count(F.lit(1)),
        "new": F.count_if(~F.col(IS_DUPLICATE)),
        "duplicates": F.count_if(F.col(IS_DUPLICATE)),
        "late": F.count_if(F.col(LATE)),
        "without_key": F.count_if(F.col(WITHOUT_KEY)),
    }
    return checked.observe(observation, *(count.alias(name) for name, count in counts.items())).drop(LATE, WITHOUT_KEY)


class DetectionMetrics(StreamingQueryListener, Collector):
    """Exports the counts of streaming queries, and the size of their ledgers, as Prometheus metrics.

    ```python
    checked = detect_duplicates(messages, …, ledger="/data/ledger", observe="orders")
    spark.streams.addListener(DetectionMetrics({"orders": "/data/ledger"}))
    start_http_server(9100)
    ```

    The counts begin at zero in each process. A batch that Spark repeats counts again. The size of a ledger is read when
    the metrics are.
    """

    def __init__(self, ledgers: Mapping[str, str | os.PathLike[str]], registry: CollectorRegistry = REGISTRY) -> None:
        """Make the metrics in a registry.

        Args:
            ledgers: The path or URI of the ledger for each name that a call of `detect_duplicates` has in `observe`.
            registry: Where the metrics are registered.
        """
        self._ledgers = {name: Ledger.open(location) for name, location in ledgers.items()}
        self._lock = Lock()
        self._counters = {
            name: Counter(f"oncebus_detect_{name}", text, ["name"], registry=registry) for name, text in _COUNTS.items()
        }
        self._seconds = Histogram(
            "oncebus_detect_batch_seconds", "Duration of a micro-batch.", ["name"], registry=registry, buckets=_SECONDS
        )
        for name in self._ledgers:
            # Show a zero before the first batch.
            for counter in self._counters.values():
                counter.labels(name)
        registry.register(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Count what a batch did. Spark calls this."""
        for name, counts in event.progress.observedMetrics.items():
            if name in self._ledgers:
                for count, counter in self._counters.items():
                    counter.labels(name).inc(counts[count] or 0)
                self._seconds.labels(name).observe(event.progress.batchDuration / 1000)

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering reads no ledger."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the size of each ledger now. A ledger that cannot be read is left out."""
        gauges = {
            name: GaugeMetricFamily(f"oncebus_ledger_{name}", text, labels=["name"]) for name, text in _GAUGES.items()
        }
        horizon = GaugeMetricFamily(
            "oncebus_ledger_horizon_seconds", "Greatest time that the ledger has seen, since 1970.", labels=["name"]
        )
        for name, ledger in self._ledgers.items():
            summary = self._summary(name, ledger)
            if summary is not None:
                for field, gauge in gauges.items():
                    gauge.add_metric([name], getattr(summary, field))
                if summary.horizon is not None:
                    horizon.add_metric([name], summary.horizon / SECOND)
        yield from (*gauges.values(), horizon)

    def _summary(self, name: str, ledger: Ledger) -> LedgerSummary | None:
        try:
            # A ledger object serves one thread at a time.
            with self._lock:
                return ledger.summary()
        except OncebusError as error:
            log.warning("The ledger of '%s' cannot be read: %s", name, error)
            return None
