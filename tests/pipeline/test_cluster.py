"""The pipeline runs on a standalone cluster, started in the same way as on one machine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from oncebus.broker.errors import ServerBusy
from oncebus.broker.sending import Incoming
from oncebus.model.entities import Rule, SqlFilter
from tests.broker.scenes import message
from tests.cluster import Cluster
from tests.programs.serve.stage import Stage

# More rows than fit into one task.
MESSAGES = [f"m{number}" for number in range(6000)]


@pytest.mark.release
def test_the_pipeline_runs_unchanged_on_a_standalone_cluster(cluster: Cluster, tmp_path: Path) -> None:
    stage = Stage(tmp_path, cluster.master, **cluster.environment)
    try:
        stage.open_gateway()
        stage.queue("q", requires_duplicate_detection=True)
        stage.topic("t", requires_duplicate_detection=True)
        red = stage.subscription("t", "red", Rule("red", SqlFilter("colour = 'red'")))

        async def send(names: list[str]) -> None:
            batches = [names[start:][:100] for start in range(0, len(names), 100)]
            await asyncio.gather(*(accepted("q", [message(name) for name in batch]) for batch in batches))
            colours = ("red", "blue", "red")
            await accepted("t", [message(colour, user={"colour": colour}) for colour in colours])

        async def accepted(path: str, messages: list[Incoming]) -> None:
            """Send until the broker accepts it, as a client does: the cluster may be slower than the sender."""
            while True:
                with suppress(ServerBusy):
                    await stage.broker.send(path, messages)
                    return

        stage.run(send(MESSAGES))
        stage.start_pipeline()
        stage.flow()
        stage.run(send(MESSAGES[::2]))
        assert sorted(stage.taken("q")) == sorted(MESSAGES)
        assert stage.taken(red) == ["red"]
        counts = stage.run(stage.broker.counts("q"))
        assert (counts.new, counts.duplicates) == (len(MESSAGES), len(MESSAGES) // 2)
        assert stage.run(stage.broker.counts("t")).duplicates == 4
        assert len(cluster.executors()) == 2
        stage.orphan_pipeline()
    finally:
        stage.close()
