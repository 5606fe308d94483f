"""Forgets keys of a ledger: a small batch of its own, which adds tombstones instead of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oncebus.detection import NO_HORIZON, NO_SEQUENCE, Rows
from oncebus.detection.values import Keys
from oncebus.ledger.batch import LedgerBatch
from oncebus.ledger.generations import Owner

if TYPE_CHECKING:
    from oncebus.ledger.ledger import Ledger

_ANY_WINDOW = -1
"""A negative window makes a row a forget. How long it is does not matter: a forget concerns all times."""


def forget(ledger: Ledger, batch: LedgerBatch, high: Keys, low: Keys) -> int:
    """Forget keys, given by the halves of their digests, in an open batch. Return how many of them were remembered.

    The batch is discarded if none was. So a forget without effect leaves no trace.
    """
    batch.begin(lambda _: True, Owner.this_process())
    # The time of a forget must not move the horizon, so that no other key is forgotten.
    horizon = ledger.listing().horizon()
    if len(high) == 0 or horizon == NO_HORIZON:
        batch.discard()
        return 0
    size = len(high)
    window = np.full(size, _ANY_WINDOW, np.int64)
    rows = Rows(
        high,
        low,
        np.ones(size, np.bool_),
        np.full(size, horizon, np.int64),
        window,
        window,
        np.full(size, NO_SEQUENCE, np.int64),
        lambda chosen: chosen.astype(np.int64),
    )
    # Spark chose the parts of the keys, by the values of their columns. One part of one holds keys of all parts.
    decision = ledger.decide(rows, batch.generation, batch.number, part=0, parts=1, clock=horizon)
    tombstones = decision.verdicts.tombstones
    if tombstones is None:
        batch.discard()
        return 0
    decision.publish()
    batch.commit()
    return len(np.unique(np.stack([tombstones.high, tombstones.low], axis=1), axis=0))
