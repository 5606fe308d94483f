"""Settings of property tests: a given number of examples, without a deadline."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(number: int = 100) -> settings:
    return settings(max_examples=number, deadline=None, suppress_health_check=[HealthCheck.too_slow])
