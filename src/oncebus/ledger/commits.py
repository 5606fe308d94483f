"""Reads the committed batches of a query from the query's checkpoint.

Spark records a batch in the folder `commits` when the sink is done with it. `lastProgress` is no substitute: it may
name a batch that has not begun.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from oncebus.ledger.storage import storage_at
from oncebus.values.errors import OncebusError

_METADATA = "metadata"


class BadCheckpoint(OncebusError):
    """The folder is not the checkpoint of a query that has committed a batch."""


class Committed(NamedTuple):
    """The newest committed batch of a query."""

    query: str
    batch: int


def committed_in(checkpoint: str | os.PathLike[str]) -> Committed | None:
    """Return the newest committed batch of the query whose checkpoint is at a path or URI; None if there is none yet.

    Raises `BadCheckpoint`.
    """
    folder, query = _folder(checkpoint), query_of(checkpoint)
    batch = _newest(f"{folder}/commits")
    return None if batch is None else Committed(query, batch)


def planned_in(checkpoint: str | os.PathLike[str]) -> int | None:
    """Return the newest batch that the query has planned; None if there is none yet.

    Spark records a batch in the folder `offsets` before any task of the batch runs.
    """
    return _newest(f"{_folder(checkpoint)}/offsets")


def query_of(checkpoint: str | os.PathLike[str]) -> str:
    """Return the id of the query whose checkpoint this is. Raises `BadCheckpoint`."""
    folder = _folder(checkpoint)
    try:
        return str(json.loads(bytes(storage_at(folder).read(_METADATA)))["id"])
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise BadCheckpoint(
            f"Folder '{folder}' is not the checkpoint of a streaming query: it has no readable '{_METADATA}'. Give the "
            "query's checkpointLocation."
        ) from error


def _folder(checkpoint: str | os.PathLike[str]) -> str:
    return os.fspath(checkpoint).rstrip("/")


def _newest(folder: str) -> int | None:
    return max((int(name) for name in storage_at(folder).names() if name.isdecimal()), default=None)
