"""How property tests draw: the same examples in each run, or more of them at random from a given seed.

`make test` draws the same examples each time, whatever runs beside them, and keeps none. `--seed` searches at random:
`make torture` does this. A failure is kept in `.hypothesis` and tried first in the next search; the same seed finds it
again without that folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

USUAL = 100
MORE = 10

# The time of an example means nothing on a machine where any process may stall for seconds.
_SLOWLY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", max_examples=USUAL, derandomize=True, database=None, **_SLOWLY)
settings.register_profile("random", max_examples=USUAL * MORE, derandomize=False, print_blob=True, **_SLOWLY)

# Hypothesis also draws the constants of all modules that are imported, so other tests would change the examples of one.
providers.is_local_module_file = lambda path: False  # type: ignore[assignment, attr-defined]


def examples(number: int, **others: Any) -> settings:
    """Return the settings of a test that needs `number` examples; a random search draws more of them."""
    return settings(max_examples=number * settings().max_examples // USUAL, **others)


_leaves_out_slow_tests = False


def search(number: int, **others: Any) -> settings:
    """Return the settings of a long search: `number` examples, or a fifth of them where slow tests are left out."""
    return examples(number // 5 if _leaves_out_slow_tests else number, **others)


def leave_out_slow_tests() -> None:
    """Shorten all long searches. Call this before the tests are imported."""
    global _leaves_out_slow_tests
    _leaves_out_slow_tests = True


def search_from(number: int, items: Iterable[pytest.Item]) -> None:
    """Let the property tests among the items draw from this seed.

    Hypothesis' own `seed` and `--hypothesis-seed` do the same, but keep no failures.
    """
    for item in items:
        test: Any = getattr(item, "obj", None)
        if getattr(test, "is_hypothesis_test", False):
            test = getattr(test, "__func__", test)
            getattr(test, "_hypothesis_state_machine_class", test)._hypothesis_internal_use_seed = number
