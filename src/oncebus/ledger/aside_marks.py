"""Parses the names of the marks that an aside leaves in the ledger's folder while it is open.

    aside-000002-TOKEN.open.17    the aside sees the batches below 17 of the query. Until it ends, tidying must leave
                                  the runs of those batches alone. The content is its owner, as JSON.
    aside-000002-TOKEN.joins      the aside is about to claim generation 2: tasks of every batch wait
    aside-000002-TOKEN.joins.25   batch 25 will be the first to see the aside: tasks of earlier batches continue

Marks mean nothing once generation 2 is claimed, by the aside or by another writer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PREFIX = "aside-"
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
