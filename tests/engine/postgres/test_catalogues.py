from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from oncebus.engine.postgres.catalogues import CatalogueChanged, PostgresCatalogues
from oncebus.engine.postgres.log import CatalogueStale, PostgresLog
from oncebus.engine.postgres.schema import check_schema
from oncebus.model.entities import Catalogue, Namespace, Queue
from oncebus.model.entities.catalogue_files import CatalogueFileError
from oncebus.postgres import Link
from tests.engine.postgres.test_log import SHARDS, row
from tests.postgres_server import PostgresServer

FIRST = Catalogue(version=1, namespace=Namespace())


class Gateways:
    """Two gateways' catalogues, and the log of one of them."""

    def __init__(self, url: str, opened: ExitStack) -> None:
        link = opened.enter_context(closing(Link(url)))
        check_schema(link, 0)
        self.one = PostgresCatalogues(link)
        self.other = PostgresCatalogues(opened.enter_context(closing(Link(url))))
        self.log = opened.enter_context(closing(PostgresLog(url, SHARDS)))


@pytest.fixture
def gateways(postgres: PostgresServer) -> Iterator[Gateways]:
    with ExitStack() as opened:
        yield Gateways(postgres.make_schema(), opened)


def test_every_gateway_sees_what_one_publishes(gateways: Gateways) -> None:
    assert gateways.one.latest() is None
    gateways.one.publish(FIRST)
    second = FIRST.create(Queue(name="q"), 0)
    gateways.other.publish(second)
    assert gateways.one.latest() == gateways.one.load(second.version) == second
    assert gateways.other.load(1) == FIRST
    gateways.other.delete_below(99)
    assert gateways.one.latest() == second
    with pytest.raises(CatalogueFileError, match="Version 1 of the catalogue is missing"):
        gateways.one.load(1)


def test_of_two_changes_to_one_version_one_takes_effect(gateways: Gateways) -> None:
    gateways.one.publish(FIRST)
    second = FIRST.create(Queue(name="q"), 0)
    gateways.one.publish(second)
    for late in (FIRST, FIRST.create(Queue(name="r"), 0)):
        with pytest.raises(CatalogueChanged, match="is not the latest one"):
            gateways.other.publish(late)
    assert gateways.other.latest() == second


def test_a_change_has_its_place_among_the_appends(gateways: Gateways) -> None:
    gateways.one.publish(FIRST)
    assert gateways.log.append([row()], 1) == 1
    gateways.other.publish(FIRST.create(Queue(name="q"), 0))
    with pytest.raises(CatalogueStale):
        gateways.log.append([row()], 1)
    assert gateways.log.append([row()], 2) == 2
