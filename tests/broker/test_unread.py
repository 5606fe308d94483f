"""What an earlier broker left in the inbox, compared with a loop over every row."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from oncebus.broker.unread import left_in
from oncebus.engine.inbox import InboxReader, InboxWriter, Row
from oncebus.model.messages import NOBODY


def row(chance: random.Random) -> Row:
    return Row(
        entity=chance.choice([NOBODY, 1, 2]),
        sequence=1,
        time=chance.randrange(1, 99),
        key=chance.randbytes(16),
        window=1,
        message_id="m",
        hops=0,
        size=chance.randrange(9),
        head=b"",
        body=None,
        body_file=chance.choice([None, f"b{chance.randrange(99)}"]),
    )


@pytest.mark.parametrize("seed", [1, 3])
def test_commits_come_with_their_bytes_their_oldest_time_and_their_bodies(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sizes: defaultdict[tuple[int, int], int] = defaultdict(int)
    oldest: dict[int, int] = {}
    bodies: defaultdict[int, set[str]] = defaultdict(set)
    with InboxWriter.open(tmp_path, 4) as writer:
        for commit in range(1, 30):
            rows = [row(chance) for _ in range(chance.randrange(1, 12))]
            assert writer.append(rows, 1) == commit
            for each in rows:
                sizes[commit, each["entity"]] += each["size"]
                if each["entity"] != NOBODY:
                    oldest[commit] = min(oldest.get(commit, 99), each["time"])
                if each["body_file"] is not None:
                    bodies[commit].add(each["body_file"])
    found: defaultdict[tuple[int, int], int] = defaultdict(int)
    times: dict[int, int] = {}
    named: defaultdict[int, set[str]] = defaultdict(set)
    commits = []
    for left in left_in(InboxReader(tmp_path).read(1, 29)):
        commits.append(left.commit)
        for entity, size in left.sizes:
            found[left.commit, entity] += size
        if left.time is not None:
            times[left.commit] = min(times.get(left.commit, 99), left.time)
        named[left.commit].update(left.body_files)
    assert commits == sorted(commits)
    assert (found, times) == (sizes, oldest)
    assert {commit: names for commit, names in named.items() if names} == {c: n for c, n in bodies.items() if n}
