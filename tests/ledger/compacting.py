"""Compacts a ledger, and waits for a line on standard input before each change of its folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from oncebus.ledger import Ledger, writers
from oncebus.ledger.local_storage import LocalStorage


def pausing(change: Callable[..., None]) -> Callable[..., None]:
    def paused(*given: Any) -> None:
        print(change.__name__, flush=True)
        sys.stdin.readline()
        change(*given)

    return paused


if __name__ == "__main__":
    # The test that wrote the last batch is alive, but does nothing now.
    setattr(writers, "SILENT_SECONDS", 0.0)  # noqa: B010
    LocalStorage.publish = pausing(LocalStorage.publish)  # type: ignore[method-assign]
    LocalStorage.delete = pausing(LocalStorage.delete)  # type: ignore[method-assign]
    Ledger.open(sys.argv[1]).compact()
