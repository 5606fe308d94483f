"""The marks that an aside leaves in the ledger's folder while it is open.

    aside-000002-TOKEN.open.17    the aside sees the batches below 17 of the query. Until it ends, tidying must leave
                                  the runs of those batches alone. The content is its owner, as JSON.
    aside-000002-TOKEN.joins      the aside is about to claim generation 2: tasks of every batch wait
    aside-000002-TOKEN.joins.25   batch 25 will be the first to see the aside: tasks of earlier batches continue

Marks mean nothing once generation 2 is claimed, by the aside or by another writer.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from oncebus.ledger.owner import Owner
from oncebus.ledger.storage import Stamp

PREFIX = "aside-"
GIVEN_UP_SECONDS = 86_400.0
"""An aside on another machine counts as ended when it has been open for this long."""
_MARK = re.compile(r"aside-(\d+)-([0-9a-f]+)\.(open|joins)(?:\.(\d+))?")


class AsideMark(NamedTuple):
    """One mark. `batch` is the number at the end of its name."""

    name: str
    number: int
    token: str
    is_joining: bool
    batch: int | None

    @classmethod
    def parse(cls, name: str) -> AsideMark | None:
        """Return the mark with this file name; None if the name is not a mark's."""
        match = _MARK.fullmatch(name)
        if match is None:
            return None
        number, token, state, batch = match.groups()
        return cls(name, int(number), token, state == "joins", None if batch is None else int(batch))


def open_mark(number: int, token: str, batch: int) -> str:
    """Return the name of the mark for an aside that sees the batches below `batch`."""
    return f"{PREFIX}{number:06d}-{token}.open.{batch}"


def joining_mark(number: int, token: str, batch: int | None = None) -> str:
    """Return the name of the mark for an aside that is about to join."""
    return f"{PREFIX}{number:06d}-{token}.joins" + ("" if batch is None else f".{batch}")


def is_given_up(text: bytes, stamp: Stamp) -> bool:
    """Return whether the aside with this mark has ended without removing the mark.

    If the mark cannot be read, its age decides.
    """
    try:
        alive = Owner.from_json(text).is_alive()
    except (ValueError, TypeError):
        alive = None
    if alive is None:
        return time.time() - stamp.modified_ns / 1e9 > GIVEN_UP_SECONDS
    return not alive
