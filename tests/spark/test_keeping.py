"""`keep` and `window_from` on batches and streams agree with the reference model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from oncebus.spark import Ledger
from oncebus.values.errors import OncebusError
from tests.reference import Message, Reference, Verdict
from tests.spark.streams import FAR_FUTURE, Stream, verdicts
from tests.spark.test_batch import checked, frame_of
from tests.spark.test_streaming import history_of


@pytest.mark.parametrize("window_from", ["last", pytest.param("first", marks=pytest.mark.release)])
def test_batches_that_keep_the_last_row(spark: SparkSession, tmp_path: Path, window_from: str) -> None:
    reference = Reference(keeps_last=True, extends=window_from == "last")
    for messages in history_of(3):
        with Ledger.open(tmp_path / "ledger").batch() as ledger:
            result = checked(frame_of(spark, messages), ledger=ledger, keep="last", window_from=window_from)
            assert verdicts(result) == reference.batch(messages, FAR_FUTURE)


def test_a_stream_whose_duplicates_extend_the_window(spark: SparkSession, tmp_path: Path) -> None:
    history, reference = history_of(4), Reference(extends=True)
    expected: dict[Message, Verdict] = {}
    for messages in history:
        expected |= reference.batch(messages, FAR_FUTURE)
    stream = Stream(spark, tmp_path, {"window_from": "last"})
    stream.write(history[:3])
    stream.run()
    stream.write(history[3:], first=3)
    stream.run()
    assert stream.found() == expected


def test_values_that_make_no_sense(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, {"keep": "last"})
    stream.write(history_of(1))
    with pytest.raises(OncebusError, match="A stream outputs the first row of a key before the last") as error:
        stream.checked()
    assert "\n" not in str(error.value)
    options: dict[str, Any]
    for options in ({"keep": "none"}, {"window_from": "middle"}):
        with pytest.raises(OncebusError, match="it must be 'first' or 'last'"):
            checked(frame_of(spark, history_of(1)[0]), **options)
