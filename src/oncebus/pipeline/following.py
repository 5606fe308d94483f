"""Follows the inbox inside one Spark task: processes commits as they arrive, without a micro-batch for each.

To plan a micro-batch and start its task takes Spark longer than everything else that happens to a message. So as long
as one task can handle the load, it keeps running: whenever there are commits, it processes them and publishes an entry
of the outbox, as a micro-batch with one part would. It ends after a while, or as soon as there is work for several
tasks.

Only for a Spark that runs each task once. A second attempt would group the commits differently, although the ledger
already has keys of the first attempt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from oncebus.engine.outbox import Outbox, OutboxPart
from oncebus.ledger import TaskLedger, Writer
from oncebus.pipeline.batch import TaskFolders, process_part
from oncebus.pipeline.planning import Planner

TURN_SECONDS = 50.0
"""How long a task follows the inbox. Spark ends idle Python workers when it has used none for a minute."""
WARM_UP_TURNS = 20
"""So many micro-batches have to be planned until Java has compiled what that takes. From then on the gap between two
turns, in which nothing is processed, is some 40 milliseconds instead of several hundred."""
WARM_UP_SECONDS = 0.2
"""For how long nothing may come in one of the first turns. So Java warms up while nobody waits."""
PACE_SECONDS = 0.01
"""The shortest time from the start of one entry to the next. An entry costs as much as hundreds of messages."""
WAIT_SECONDS = 1.0
"""The longest wait for a commit. Then the task checks whether another query has begun."""


class Reached(NamedTuple):
    """How far a query has come: all commits up to `after` are in the outbox, and `batch` is its next entry's number.

    The ledger knows a batch by this number. The numbers of a query have no gaps.
    """

    after: int
    batch: int


class Turn(NamedTuple):
    """The job of one task: follow the inbox from `begin` on, for `seconds`, or until no commit comes for `patience`."""

    begin: Reached
    seconds: float
    patience: float


def turn(begin: Reached, number: int) -> Turn:
    """Return what the task of micro-batch `number` is to do. The first ones end early: see `WARM_UP_TURNS`."""
    return Turn(begin, TURN_SECONDS, WARM_UP_SECONDS if number <= WARM_UP_TURNS else TURN_SECONDS)


def reached(drafts: str, start: int) -> Reached:
    """Return how far the query that began after the commit `start` has come. None of its tasks may be running."""
    newest = Outbox(os.path.dirname(drafts)).newest()
    if newest is None or newest.last <= start:
        return Reached(start, 0)
    return Reached(newest.last, newest.batch().number + 1)


def follow(
    turn: Turn, planner: Planner, folders: TaskFolders, ledger: TaskLedger, writer: Writer
) -> Iterator[tuple[OutboxPart, int]]:
    """Process commits as they arrive. Yields each part with its number of inbox rows.

    Returns at the end of the turn, or earlier if there is work for several tasks or another query has begun.
    """
    (after, batch), seconds, patience = turn
    earliest = busy = time.monotonic()
    end = busy + seconds
    while (left := min(end, busy + patience) - time.monotonic()) > 0 and os.path.isdir(folders.drafts):
        planner.wait(after, min(left, WAIT_SECONDS))
        time.sleep(max(earliest - time.monotonic(), 0))
        parts = planner.parts(after + 1, planner.last_commit(after))
        if len(parts) > 1:
            return
        for part in parts:
            busy = time.monotonic()
            earliest = busy + PACE_SECONDS
            yield part.of, process_part(part, folders, ledger, writer, batch)
            after, batch = part.of.last, batch + 1
