"""How much rows of the inbox weigh. See `oncebus.entities.weights`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebus.entities.weights import LIGHT_COPIES

_ROW_BYTES = 200


def weight_of_rows(rows: pa.RecordBatch, copies: Mapping[int, int]) -> int:
    """What counts of rows of the inbox, given the copies by topic."""
    entities, places = np.unique(rows.column("entity").to_numpy(), return_inverse=True)
    each = np.array([max(copies.get(entity, 1), LIGHT_COPIES) for entity in entities.tolist()], np.int64)[places]
    sizes = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name in ("head", "body"):
        sizes += pc.binary_length(rows.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    return int((sizes * each).sum()) // LIGHT_COPIES
