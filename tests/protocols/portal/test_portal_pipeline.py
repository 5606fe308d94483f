"""The page of the pipeline."""

from __future__ import annotations

import re
from pathlib import Path

from oncebus.broker.addresses import Address
from oncebus.engine.folders import Folders
from oncebus.pipeline.driver import LocalDriver
from tests.broker.in_process import SHARDS
from tests.broker.scenes import message

from .visitor import Visitor, visit, words


def test_the_page_shows_batches_and_where_the_time_went(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        page = words(await visitor.get("pipeline"))
        assert "No batch since the gateway started." in page
        # There may be pulses.
        assert re.search(r"Lag \d commits? (nothing waits|the oldest for)", page)
        await front.broker.send("q", [message("1"), message("2"), message("1")])
        await front.broker.counts("q")
        front.time.advance(4)
        await front.broker.receive(Address("q"), 2)
        front.time.advance(5)
        page = words(await visitor.get("pipeline"))
        assert re.search(r"9\.0 s ago 3 \d \d 0 ms 0 ms 0 ms", page)
        assert "In all, from the answer until it is received 4.0 s 5.0 s 5.0 s 2 oncebus_end_to_end_seconds" in page
        assert re.search(r"Received waited for a consumer \d\S* m?s", page)
        assert re.search(r"Remembered ids 2 \S+ (bytes|KB) in \d runs? Generation 1 0 restarts", page)

    visit(tmp_path, play)


def test_a_pipeline_that_lags_or_was_restarted_is_visible(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("q", requires_duplicate_detection=True)
        for start in range(3):
            await front.broker.send("q", [message(f"{start}")])
            front.time.advance(7)
            page = words(await visitor.get("pipeline"))
            # Pulses are commits too.
            assert re.search(r"Lag \d+ commits? the oldest for \d", page)
            pipeline = LocalDriver(Folders(tmp_path), shards=SHARDS)
            while pipeline.step():
                pass
            await front.broker.counts("q")
            front.time.advance(5)
            page = words(await visitor.get("pipeline"))
            assert f"Generation {start + 1} {start} restart" in page

    visit(tmp_path, play, pipeline=False)
