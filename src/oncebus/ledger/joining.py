"""Lets the batches of a query wait while an aside joins, so that each batch either sees the aside or does not.

An aside marks that it is about to join, and only then reads which batch the query planned last. Every later batch lists
the ledger after the mark, waits until the aside has joined or given up, and sees it in the first case.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from oncebus.ledger.generations import Owner, void_generation
from oncebus.ledger.listing import Listing
from oncebus.ledger.storage import Stamp

if TYPE_CHECKING:
    from oncebus.ledger.task_ledger import TaskLedger

PATIENCE_SECONDS = 60.0
"""A batch waits this long for an aside to join. Then it takes the aside's number, and the aside is refused."""

POLL_SECONDS = 0.05
GIVEN_UP_SECONDS = 86_400.0
"""An aside on another machine counts as ended when it has been open for this long."""


def wait_for_asides(ledger: TaskLedger, batch: int) -> Listing:
    """Return the files of the ledger at a moment when it is decided which asides the batch sees."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (mark := (listing := ledger.listing()).joining(batch)) is not None:
        opened = [other for other in listing.asides if other.token == mark.token and not other.is_joining]
        if time.monotonic() > deadline or not opened or ledger.is_given_up(opened[0], listing):
            # Take the number, so that the aside cannot claim it any more. Nothing else changes: other tasks of this
            # batch may have published their runs before the aside left its mark.
            ledger.claim_first(void_generation(mark.number))
        else:
            time.sleep(POLL_SECONDS)
    return listing


def owner_text(owner: Owner) -> bytes:
    """Return the content of the mark of an open aside."""
    return json.dumps(asdict(owner)).encode()


def parse_owner(text: bytes) -> Owner:
    """Parse the result of `owner_text`. Raises `ValueError` or `TypeError`."""
    return Owner(**json.loads(text))


def is_given_up(text: bytes, stamp: Stamp) -> bool:
    """Return whether the aside with this mark has ended without removing the mark.

    If the mark cannot be read, its age decides.
    """
    try:
        alive = parse_owner(text).is_alive()
    except (ValueError, TypeError):
        alive = None
    if alive is None:
        return time.time() - stamp.modified_ns / 1e9 > GIVEN_UP_SECONDS
    return not alive
