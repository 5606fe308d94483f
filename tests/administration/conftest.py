from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from oncebus.model.entities import Tier
from tests.protocols.arm.management import management
from tests.protocols.atom.served import administration

from .administrators import Administrator, Atom, ResourceManager
from .served import Served, gateway_alone, whole_broker

Administrators = Callable[[str, Tier], Administrator]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return one broker for all tests of a module, because its start takes many seconds."""
    with whole_broker(tmp_path_factory.mktemp("administration")) as running:
        yield running


@pytest.fixture(scope="module")
def tiers(serving: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[Tier, Served]]:
    """Return a broker for each tier."""
    with ExitStack() as stack:
        alone = {
            tier: stack.enter_context(gateway_alone(tmp_path_factory.mktemp(tier.lower()), tier))
            for tier in (Tier.BASIC, Tier.PREMIUM)
        }
        yield {Tier.STANDARD: serving, **alone}


@pytest.fixture(scope="module")
def administrators(tiers: Mapping[Tier, Served]) -> Iterator[Administrators]:
    """Return the Python clients by name, for the broker of a tier."""
    known: dict[tuple[str, Tier], Administrator] = {}
    with ExitStack() as stack:
        for tier, broker in tiers.items():
            known["Atom", tier] = Atom(stack.enter_context(administration(broker)))
            known["ResourceManager", tier] = ResourceManager(stack.enter_context(management(broker)))
        yield lambda name, tier: known[name, tier]
