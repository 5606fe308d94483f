"""The entities of the broker that all tests of the package share. Each entity is for one scenario only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

DETECTS: dict[str, object] = {"requiresDuplicateDetection": True}
SESSIONS: dict[str, object] = {"requiresSession": True}
SHORT: dict[str, object] = {"lockDuration": "PT10S"}
LONG: dict[str, object] = {"lockDuration": "PT5M"}
PARTITIONED: dict[str, object] = {"enablePartitioning": True}

QUEUES: dict[str, tuple[int, dict[str, object]]] = {
    "plain": (265, {}),
    "short": (40, SHORT),
    "twice": (13, {"maxDeliveryCount": 2}),
    "detecting": (79, DETECTS),
    "detecting-long": (2, DETECTS | LONG),
    "sessions": (68, SESSIONS),
    "short-sessions": (24, SESSIONS | SHORT),
    "detecting-sessions": (14, DETECTS | SESSIONS),
    "detecting-partitioned": (16, DETECTS | PARTITIONED),
    "disabled": (12, {"status": "Disabled"}),
    "send-disabled": (6, {"status": "SendDisabled"}),
    "receive-disabled": (6, {"status": "ReceiveDisabled"}),
}
TOPICS: dict[str, tuple[int, dict[str, object]]] = {
    "topic": (26, {}),
    "detecting-topic": (12, DETECTS),
}
SUBSCRIPTIONS: dict[str, list[dict[str, object]] | None] = {
    "all": None,
    "dear": [{"name": "dear", "sqlFilter": "price > 100", "action": "SET urgent = true"}],
    "red": [{"name": "red", "correlationFilter": {"label": "paint", "properties": {"colour": "red"}}}],
}
FOR_SAMPLES = Path(__file__).parents[2] / "examples" / "entities.json"


def names(kind: str) -> list[str]:
    """Return the names of all entities of a kind."""
    return [f"{kind}-{number}" for number in range(1, (QUEUES | TOPICS)[kind][0] + 1)]


def described() -> Iterator[dict[str, object]]:
    """Yield the entries of the entities file."""
    for kind, (_, properties) in QUEUES.items():
        for name in names(kind):
            yield {"type": "queue", "name": name, **properties}
    for kind, (_, properties) in TOPICS.items():
        for name in names(kind):
            yield {"type": "topic", "name": name, **properties}
            for subscription, rules in SUBSCRIPTIONS.items():
                given = {} if rules is None else {"rules": rules}
                yield {"type": "subscription", "topic": name, "name": subscription, **given}
    yield from json.loads(FOR_SAMPLES.read_text())


class Pool:
    """Hands each entity out once."""

    def __init__(self) -> None:
        self._left = {kind: names(kind) for kind in QUEUES | TOPICS}
        self._lock = threading.Lock()

    def take(self, kind: str, count: int = 1) -> list[str]:
        with self._lock:
            assert len(self._left[kind]) >= count, f"no more of the kind '{kind}': make more in entities.py"
            taken, self._left[kind] = self._left[kind][:count], self._left[kind][count:]
        return taken
