"""What detection did is visible in the progress of a query and in Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import Observation, SparkSession

from oncebus.spark import DetectionMetrics, Ledger, detect_duplicates
from oncebus.spark.operator import BadCall
from tests.histories import SECOND, START
from tests.reference import Message
from tests.spark.streams import Stream
from tests.spark.test_batch import frame_of

WINDOW = 60 * SECOND


def messages_of(*times: int, first: int = 0) -> list[Message]:
    return [Message(f"k{at % 3}", START + time * SECOND, first + at, WINDOW) for at, time in enumerate(times)]


def test_a_stream_reports_its_counts(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, {"observe": "orders"})
    # In the second batch, two rows are new, one repeats a row of its own batch, and one is late and new.
    without = Message(None, START, 4, WINDOW)
    stream.write([[*messages_of(0, 0, 0, 1), without], messages_of(200, 200, -100, 201, first=10)])
    registry = CollectorRegistry()
    metrics = DetectionMetrics({"orders": stream.ledger, "missing": tmp_path / "missing"}, registry)
    assert registry.get_sample_value("oncebus_detect_rows_total", {"name": "orders"}) == 0
    spark.streams.addListener(metrics)
    try:
        query = stream.run()
        java: Any = spark._jsparkSession
        java.sparkContext().listenerBus().waitUntilEmpty(60_000)
    finally:
        spark.streams.removeListener(metrics)
    found = [progress.observedMetrics["orders"].asDict() for progress in query.recentProgress]
    assert found == [
        {"rows": 5, "new": 4, "duplicates": 1, "late": 0, "without_key": 1},
        {"rows": 4, "new": 3, "duplicates": 1, "late": 1, "without_key": 0},
    ]
    assert spark.read.parquet(str(stream.output)).columns == stream.checked().columns
    totals = {"rows": 9.0, "new": 7.0, "duplicates": 2.0, "late": 1.0, "without_key": 1.0}
    for name, total in totals.items():
        assert registry.get_sample_value(f"oncebus_detect_{name}_total", {"name": "orders"}) == total
    assert registry.get_sample_value("oncebus_detect_batch_seconds_count", {"name": "orders"}) == 2
    summary = Ledger.open(stream.ledger).summary()
    assert registry.get_sample_value("oncebus_ledger_bytes", {"name": "orders"}) == summary.bytes
    assert registry.get_sample_value("oncebus_ledger_ids", {"name": "orders"}) == summary.ids
    assert registry.get_sample_value("oncebus_ledger_runs", {"name": "orders"}) == summary.runs
    assert registry.get_sample_value("oncebus_ledger_horizon_seconds", {"name": "orders"}) == START / SECOND + 201
    (tmp_path / "ledger" / "ledger.json").unlink()
    (tmp_path / "ledger" / "generation-000001.json").write_text("{")
    text = generate_latest(registry).decode()
    assert 'oncebus_ledger_ids{name="orders"}' not in text, "a ledger that cannot be read is left out"
    assert 'oncebus_detect_rows_total{name="orders"} 9.0' in text


def test_a_batch_reports_its_counts(spark: SparkSession) -> None:
    seen = Observation("batch")
    frame = frame_of(spark, messages_of(0, 0, 0, 1))
    options: dict[str, Any] = {"key": "key", "time": "time", "window": "window"}
    assert detect_duplicates(frame, **options, observe=seen).filter("is_duplicate").count() == 1
    assert seen.get == {"rows": 4, "new": 3, "duplicates": 1, "late": 0, "without_key": 0}
    wrong: Any = 5
    with pytest.raises(BadCall, match="observe is 5; it must be a name or an Observation"):
        detect_duplicates(frame, **options, observe=wrong)
