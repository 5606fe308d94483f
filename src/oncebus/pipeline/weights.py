"""How much a message weighs that a topic copies for many subscriptions: the copies have to fit into memory too.

What goes together is bounded by weight: messages of a commit in the gateway, commits of a micro-batch here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncebus.entities import Catalogue, Topic

LIGHT_COPIES = 8
"""A message with so many copies weighs as much as one; beyond that its weight grows with them."""

_ROW_BYTES = 200


def copies_by_topic(catalogue: Catalogue, above: int = LIGHT_COPIES) -> dict[int, int]:
    """How many copies there may be of a message, for each topic that makes more than `above`."""
    found = {}
    for entity in catalogue.entities.values():
        if isinstance(entity, Topic):
            subscriptions = catalogue.subscriptions_of(entity)
            # Each rule with an action makes a copy of its own.
            actions = sum(rule.action is not None for each in subscriptions for rule in each.rules)
            if len(subscriptions) + actions > above:
                found[entity.id] = len(subscriptions) + actions
    return found


def weight(size: int, copies: int) -> int:
    """What counts of so many bytes that are copied so often."""
    return size * max(copies, LIGHT_COPIES) // LIGHT_COPIES


def weight_of_rows(rows: pa.RecordBatch, copies: Mapping[int, int]) -> int:
    """What counts of rows of the inbox, given the copies by topic."""
    entities, places = np.unique(rows.column("entity").to_numpy(), return_inverse=True)
    each = np.array([max(copies.get(entity, 1), LIGHT_COPIES) for entity in entities.tolist()], np.int64)[places]
    sizes = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name in ("head", "body"):
        sizes += pc.binary_length(rows.column(name)).fill_null(0).to_numpy(zero_copy_only=False)
    return int((sizes * each).sum()) // LIGHT_COPIES
