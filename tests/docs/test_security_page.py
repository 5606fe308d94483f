"""Tests that docs/reference/security.md names every limit of the gateway with its value."""

from __future__ import annotations

import dataclasses
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import oncebus.protocols.http.limits
import oncebus.protocols.servicebus.limits
from oncebus.amqp import limits as amqp_limits
from oncebus.broker import transactions
from oncebus.protocols import listening

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "security.md"
UNITS = {"": 1, "s": 1, "KB": 1 << 10, "MB": 1 << 20}
# A value, followed by its constant.
CELLS = re.compile(r"\| (?P<number>[0-9.]+)(?: (?P<unit>s|KB|MB))? \| `(?P<name>oncebus\.[\w.]+)`")
MODULES = (amqp_limits, listening, transactions)
LIMITS = (oncebus.protocols.servicebus.limits.AmqpLimits, oncebus.protocols.http.limits.Limits)
NOT_BOUNDS = {
    "oncebus.amqp.limits.MEGABYTE",
    # Imported there, or a text.
    "oncebus.broker.transactions.SECOND",
    "oncebus.broker.transactions.SPANS",
    # Limits of the health check, which are settings.
    "oncebus.protocols.http.limits.Limits.lag",
    "oncebus.protocols.http.limits.Limits.heartbeat",
}


def documented() -> dict[str, float]:
    """Return the constants on the page, each with the value that the page gives."""
    return {
        found["name"]: float(found["number"]) * UNITS[found["unit"] or ""] for found in CELLS.finditer(PAGE.read_text())
    }


def value_of(name: str) -> Any:
    """Return the value of a module's constant, or the default of a field of its limits."""
    module, _, last = name.rpartition(".")
    if module.endswith("Limits"):
        module, _, limits = module.rpartition(".")
        return getattr(getattr(import_module(module), limits)(), last)
    return getattr(import_module(module), last)


@pytest.mark.parametrize("name", documented())
def test_the_page_has_the_value_of_each_bound(name: str) -> None:
    assert value_of(name) == documented()[name]


def test_every_bound_is_on_the_page() -> None:
    names = {f"{module.__name__}.{name}" for module in MODULES for name in vars(module) if name.isupper()}
    names |= {
        f"{each.__module__}.{each.__name__}.{field.name}" for each in LIMITS for field in dataclasses.fields(each)
    }
    own = {name for name in names if not name.rpartition(".")[2].startswith("_")}
    assert own - NOT_BOUNDS - set(documented()) == set()


def test_every_constant_that_the_page_names_is_compared() -> None:
    assert set(re.findall(r"`(oncebus\.[\w.]+)`", PAGE.read_text())) == set(documented())
