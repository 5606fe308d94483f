"""Lock tokens."""

from __future__ import annotations

from collections.abc import Callable

_BYTES = 16


class LockTokens:
    """Random tokens. `random` returns the given number of random bytes."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        self._random = random

    def take(self, count: int) -> list[bytes]:
        """Return new tokens."""
        together = self._random(_BYTES * count)
        return [together[at : at + _BYTES] for at in range(0, len(together), _BYTES)]
