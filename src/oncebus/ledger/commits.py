"""Reads the committed batches of a query from the query's checkpoint.

Spark records a batch in the folder `commits` when the sink is done with it. `lastProgress` is no substitute: it may
name a batch that has not begun.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from oncebus.errors import OncebusError
from oncebus.ledger.storage import storage_at

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
    folder = os.fspath(checkpoint).rstrip("/")
    try:
        query = json.loads(bytes(storage_at(folder).read(_METADATA)))["id"]
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise BadCheckpoint(
            f"Folder '{folder}' is not the checkpoint of a streaming query: it has no readable '{_METADATA}'. Give the "
            "query's checkpointLocation."
        ) from error
    batches = [int(name) for name in storage_at(f"{folder}/commits").names() if name.isdecimal()]
    return Committed(str(query), max(batches)) if batches else None
