"""Who writes a ledger: each start of a query, and each batch that joined, is a generation.

A generation is claimed by publishing `generation-000002.json`, which only one writer can:

    {"number": 2, "token": "…", "query": "…", "first_batch": 18, "keeps_below": 18, "floor": 11, "owner": {…} or null}

A stream claims before its first run, a batch after its last. `query` is the query, the same after a restart from its
checkpoint; `token` names the writer within it, see `oncebus.ledger.writers`. The query cannot go back before the batch
`floor`. `keeps_below` is what the claim leaves of the generations before it: their batches below that number count, the
others do not. A query that is restarted repeats its last batch if that was not committed, so it keeps the batches below
its first. A new query cannot know whether its predecessor's last batch was committed; a message that was never output
must not be dropped, so it keeps the batches below that last one, unless it was confirmed. Of a predecessor that left
no run it keeps what is known to be committed and no more: a task of it may still be about to publish one.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncebus.errors import OncebusError

BATCH_QUERY = "batch "
"""What the query of a batch that joined begins with: a batch is committed by its claim."""

IN_QUERY = "foreach "
"""What the query begins with where the batches of a query are opened one by one, as in `foreachBatch`."""

EVERY_BATCH = 2**62
REPEATABLE_BATCHES = 8
"""So many of the newest batches are neither merged nor deleted: a query may be taken back to the first of them."""

SILENT_SECONDS = 60.0
"""A writer on another machine that has published nothing for so long is taken to have ended."""


class LedgerInUse(OncebusError):
    """Another writer is, or has since been, at work on the ledger."""


class CheckpointTooOld(OncebusError):
    """The query's checkpoint is from a time that the ledger cannot go back to."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that can be asked whether it still lives, by processes at the same place."""

    place: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Owner:
        """The process that asks."""
        return cls(_place(), os.getpid(), _started(os.getpid()) or "")

    @classmethod
    def remote_session(cls, session: str) -> Owner:
        """A session of Spark Connect: nobody can be asked whether it lives."""
        return cls("spark connect", 0, session)

    def is_alive(self) -> bool | None:
        """Whether the process lives; None where that cannot be told from here."""
        if self.place != _place():
            return None
        return _started(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Generation:
    """One writer's time with the ledger. See the module."""

    number: int
    token: str
    query: str
    first_batch: int
    keeps_below: int
    floor: int
    owner: Owner | None

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch that joined by itself, not part of a query."""
        return self.query.startswith(BATCH_QUERY)

    @property
    def is_in_query(self) -> bool:
        """Whether its batches are opened one by one, under numbers that the caller gives."""
        return self.query.startswith(IN_QUERY)

    def is_behind(self, newest: Generation) -> bool:
        """Whether another writer has claimed this number or a later one. One token may serve several queries."""
        return newest.number > self.number or (newest.number == self.number and newest.token != self.token)

    @property
    def file_name(self) -> str:
        """The name it is claimed under."""
        return f"generation-{self.number:06d}.json"

    def to_json(self) -> bytes:
        """The file's content."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Generation:
        """Read back what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(data)
        owner = fields.pop("owner")
        return cls(**fields, owner=Owner(**owner) if owner else None)


def limits(generations: Sequence[Generation]) -> dict[int, int]:
    """For each generation's number, the first of its batches that does not count, given the generations in order."""
    result: dict[int, int] = {}
    limit, later = EVERY_BATCH, None
    for generation in reversed(generations):
        if later is not None:
            limit = min(limit if later.query == generation.query else EVERY_BATCH, later.keeps_below)
        result[generation.number] = limit
        later = generation
    return result


def lineage(generations: Sequence[Generation]) -> set[int]:
    """The numbers of the newest generations that are starts of one and the same query."""
    numbers = set()
    for generation in reversed(generations):
        if generation.query != generations[-1].query:
            break
        numbers.add(generation.number)
    return numbers


def succeed(
    generations: Sequence[Generation],
    *,
    token: str,
    query: str,
    first_batch: int,
    last_recorded: int | None,
    last_confirmed: int | None,
    owner: Owner | None,
    location: str,
) -> Generation:
    """The generation that would follow, or the reason why there can be none.

    `last_recorded` is the newest batch that the newest query has left a run of, `last_confirmed` the newest known to
    be committed. Whether the newest writer still lives is not asked here.
    """
    newest = generations[-1] if generations else None
    floor = 0
    if newest is not None and newest.query == query:
        floor = newest.floor
        if last_recorded is not None:
            floor = max(floor, last_recorded - REPEATABLE_BATCHES + 1)
        if first_batch < floor:
            raise CheckpointTooOld(
                f"Ledger '{location}' can go back to batch {floor} of query {query} at most, but its checkpoint "
                f"continues at batch {first_batch}. Restore the ledger of the same time as the checkpoint, or start "
                "the query with a new checkpoint."
            )
        keeps_below = first_batch
    elif any(generation.query == query for generation in generations):
        raise CheckpointTooOld(
            f"Ledger '{location}' was taken over by query {newest.query if newest else ''} after query {query} had "
            "written it. Start the query with a new checkpoint."
        )
    else:
        keeps_below = keeps_of_predecessor(last_recorded, last_confirmed)
    number = newest.number + 1 if newest else 1
    return Generation(number, token, query, first_batch, keeps_below, floor, owner)


def keeps_of_predecessor(last_recorded: int | None, last_confirmed: int | None) -> int:
    """Below which batch another query's keys count, once that query is over."""
    if last_recorded is None:
        # A run that appears from now on is of a task that outlived its query: nobody will see its output.
        return 0 if last_confirmed is None else last_confirmed + 1
    if last_confirmed is not None and last_confirmed >= last_recorded:
        return last_recorded + 1
    return last_recorded


def _place() -> str:
    """Names the space in which a process number means something: this boot of this machine, this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str | None:
    """When the process started, as the system counts; None if there is no such process."""
    try:
        # The fields after the name in parentheses: the process state is the first of them, the start time the 20th.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self").exists():
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""
