"""Defines generations: each start of a query, and each batch whose keys were added on their own, is one.

A writer claims a generation by publishing a file. Only one writer can succeed in publishing `generation-000002.json`:

    {"number": 2, "token": "…", "query": "…", "first_batch": 18, "keeps_below": 18, "floor": 11, "owner": {…} or null,
     "parts": 2}

A stream claims before its first run, a batch after its last. `query` is the query id, which stays the same after a
restart from its checkpoint. `token` identifies the writer within the query: see `oncebus.ledger.writers`. The query
cannot go back before the batch `floor`. `parts` is the number of parts that the ledger's last query of
`detect_duplicates` cut its batches into; null if there was none. A query keeps it when it starts again, because sinks
may tell rows by their partition, and a smaller cluster must not change that.

`keeps_below` decides how much of the previous generation counts: only its batches below that number.

- A restarted query repeats its last batch if that was not committed, so it keeps the batches below its first.
- A new query cannot know whether the last batch of its predecessor was committed. A message that was never output must
  not be dropped later as a duplicate, so the query keeps only the batches below the last one, unless that one was
  confirmed.
- If the predecessor left no run, the new query keeps only the batches that are known to be committed, because a task of
  the predecessor may still be about to publish a run.

A batch beside a query has `"is_aside": true`. It leaves the query its turn: the query continues with a generation that
begins at the batch `floor` of the aside, or later. See `oncebus.ledger.asides`. If `query` begins with
"void", the generation only takes a number away from an aside that died, and counts for nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oncebus.ledger.aside_marks import open_mark
from oncebus.ledger.owner import Owner
from oncebus.values.errors import OncebusError

BATCH_QUERY = "batch "
"""The prefix of `query` for a single batch, outside a query. Claiming the generation commits the batch."""

IN_QUERY = "foreach "
"""The prefix of `query` for a query that opens its batches one by one, as in `foreachBatch`."""

VOID_QUERY = "void "
"""The prefix of `query` for a number that is taken so that an aside cannot claim it. It is nobody's turn."""

EVERY_BATCH = 2**62
REPEATABLE_BATCHES = 8
"""The number of newest batches that are neither merged nor deleted: a query may go back to the first of them."""

SILENT_SECONDS = 60.0
"""A writer on another machine counts as ended when it has published nothing for this long."""


class LedgerInUse(OncebusError):
    """Another writer is using the ledger, or has used it in the meantime."""


class CheckpointTooOld(OncebusError):
    """The query's checkpoint is older than the oldest batch that the ledger can go back to."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One writer's turn with the ledger. The module's docstring describes the fields."""

    number: int
    token: str
    query: str
    first_batch: int
    keeps_below: int
    floor: int
    owner: Owner | None
    is_aside: bool = False
    parts: int | None = None

    @property
    def is_batch(self) -> bool:
        """Return whether this is a single batch, outside a query."""
        return self.query.startswith(BATCH_QUERY)

    @property
    def is_void(self) -> bool:
        """Return whether the number is only taken."""
        return self.query.startswith(VOID_QUERY)

    @property
    def is_in_query(self) -> bool:
        """Return whether the caller opens numbered batches one by one, inside `foreachBatch`."""
        return self.query.startswith(IN_QUERY)

    def is_behind(self, newest: Generation) -> bool:
        """Return whether another writer has claimed this number or a later one.

        `newest` is the generation claimed last.
        """
        return newest.number > self.number or (newest.number == self.number and newest.token != self.token)

    @property
    def file_name(self) -> str:
        """Return the name of the file that claims this generation."""
        return generation_file(self.number)

    @property
    def open_mark(self) -> str:
        """Return the name of the mark that an aside leaves while it is open."""
        return open_mark(self.number, self.token, self.floor)

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Generation:
        """Parse the content of the file."""
        fields: dict[str, Any] = json.loads(data)
        owner = fields.pop("owner")
        return cls(**fields, owner=Owner(**owner) if owner else None)


def generation_file(number: int) -> str:
    """Return the name of the file that claims this number."""
    return f"generation-{number:06d}.json"


def void_generation(number: int) -> Generation:
    """Return a generation that takes a number, so that nobody else can claim it. It counts for nothing."""
    token = uuid.uuid4().hex
    return Generation(number, token, VOID_QUERY + token, 0, 0, 0, Owner.this_process(), is_aside=True)


def limits(generations: Sequence[Generation]) -> dict[int, int]:
    """Return, by generation number, the first batch of each generation that does not count.

    The generations must be in order.
    """
    result: dict[int, int] = {}
    limit, later = EVERY_BATCH, None
    for generation in reversed(generations):
        if later is not None:
            limit = min(limit if later.query == generation.query else EVERY_BATCH, later.keeps_below)
        result[generation.number] = limit
        later = generation
    return result


def lineage(generations: Sequence[Generation]) -> set[int]:
    """Return the numbers of the newest generations that belong to the same query as the last one."""
    numbers = set()
    for generation in reversed(generations):
        if generation.query != generations[-1].query:
            break
        numbers.add(generation.number)
    return numbers


def main_writer(generations: Sequence[Generation]) -> Generation | None:
    """Return the newest generation that is not an aside: the writer whose turn it is."""
    return next((generation for generation in reversed(generations) if not generation.is_aside), None)


def parts_of_query(generations: Sequence[Generation]) -> int | None:
    """Return the number of parts of the last query that keeps one."""
    return next((generation.parts for generation in reversed(generations) if generation.parts), None)


def succeed(
    generations: Sequence[Generation],
    *,
    number: int,
    token: str,
    query: str,
    first_batch: int,
    last_recorded: int | None,
    last_confirmed: int | None,
    owner: Owner | None,
    location: str,
    parts: int | None = None,
) -> Generation:
    """Return the next generation, for the writer to claim. Raises `CheckpointTooOld` if the query cannot continue.

    `generations` are those that count, in order, and `number` is the first one after all of them that is not taken.
    `last_recorded` is the newest query's newest batch that has a run, and `last_confirmed` is its newest batch that
    is known to be committed. This does not check whether the newest writer is still alive.
    """
    newest, main = generations[-1] if generations else None, main_writer(generations)
    floor = 0
    if newest is not None and newest.is_aside:
        if main is not None and main.query == query:
            floor = newest.floor
            if first_batch < floor:
                raise too_old(location, query, floor, first_batch)
        elif any(generation.query == query for generation in generations):
            raise _taken_over(location, query, newest)
        # An aside has one batch, whose number is 0 and which counts.
        keeps_below = 1
    elif newest is not None and newest.query == query:
        floor = newest.floor
        if last_recorded is not None:
            floor = max(floor, oldest_repeatable(last_recorded))
        if first_batch < floor:
            raise too_old(location, query, floor, first_batch)
        keeps_below = first_batch
    elif any(generation.query == query for generation in generations):
        raise _taken_over(location, query, newest)
    else:
        keeps_below = keeps_of_predecessor(last_recorded, last_confirmed)
    return Generation(
        number, token, query, first_batch, keeps_below, floor, owner, parts=parts or parts_of_query(generations)
    )


def oldest_repeatable(last_recorded: int) -> int:
    """Return the oldest batch that a query may go back to after it has recorded a batch."""
    return last_recorded - REPEATABLE_BATCHES + 1


def too_old(location: str, query: str, floor: int, batch: int) -> CheckpointTooOld:
    """Return the error for a query whose checkpoint continues at a batch before the oldest repeatable one."""
    return CheckpointTooOld(
        f"Ledger '{location}' can go back to batch {floor} of query {query} at most, but its checkpoint continues at "
        f"batch {batch}. Restore the ledger from the same time as the checkpoint, or start the query with a new "
        "checkpoint."
    )


def refuse_to_go_back(location: str, generation: Generation, batch: int, last: int | None) -> None:
    """Raise `CheckpointTooOld` if a query was restarted with the same plan from a checkpoint that is too old.

    `last` is the newest batch of the generation that has a run. This also stops a task that has outlived its batch: the
    runs that it saw may be gone.
    """
    if batch < generation.first_batch:
        # The generation sees the earlier batches of its predecessor: all rows of this one would be duplicates.
        raise CheckpointTooOld(
            f"Ledger '{location}' has given query {generation.query} a start at batch {generation.first_batch}, but "
            f"batch {batch} comes. If the query's checkpoint was restored, call detect_duplicates again."
        )
    if last is None:
        return
    # In foreachBatch, a batch begins only when the one before has ended.
    floor = last if generation.is_in_query else oldest_repeatable(last)
    if batch < floor:
        raise too_old(location, generation.query, floor, batch)


def _taken_over(location: str, query: str, newest: Generation | None) -> CheckpointTooOld:
    return CheckpointTooOld(
        f"Ledger '{location}' was taken over by query {newest.query if newest else ''} after query {query} wrote to "
        "it. Start the query with a new checkpoint. A batch that leaves a query its turn is opened with "
        "Ledger.open(…).batch(checkpoint=…)."
    )


def keeps_of_predecessor(last_recorded: int | None, last_confirmed: int | None) -> int:
    """Return the batch number below which the keys of an ended query count for the next query."""
    if last_recorded is None:
        # A run that appears from now on comes from a task that outlived its query. Nobody will see its output.
        return 0 if last_confirmed is None else last_confirmed + 1
    if last_confirmed is not None and last_confirmed >= last_recorded:
        return last_recorded + 1
    return last_recorded
