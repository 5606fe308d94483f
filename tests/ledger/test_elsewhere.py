"""A ledger on an object store passes the same tests as one in a folder, and the same random histories."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.histories import Batch, histories
from tests.ledger import test_ledger_properties as properties

# pytest collects these imported tests again here, and `tmp_path` below gives them a folder on the store.
from tests.ledger.test_generations import (
    test_a_batch_is_refused_beside_a_stream,
    test_a_batch_joins_once_and_stays,
    test_a_dead_writer_is_succeeded_at_once,
    test_a_query_cannot_go_back_further_in_two_steps_than_in_one,
    test_a_query_that_restarts_elsewhere_goes_on_at_once,
    test_a_restart_proves_that_earlier_batches_are_committed,
    test_a_second_writer_is_refused_while_the_first_is_alive,
    test_a_writer_that_was_succeeded_is_refused,
    test_one_of_two_writers_at_the_same_moment_is_refused,
    test_only_the_last_writer_can_be_confirmed,
)
from tests.object_stores import Server
from tests.properties import examples

__all__ = [
    "test_a_batch_is_refused_beside_a_stream",
    "test_a_batch_joins_once_and_stays",
    "test_a_dead_writer_is_succeeded_at_once",
    "test_a_query_cannot_go_back_further_in_two_steps_than_in_one",
    "test_a_query_that_restarts_elsewhere_goes_on_at_once",
    "test_a_restart_proves_that_earlier_batches_are_committed",
    "test_a_second_writer_is_refused_while_the_first_is_alive",
    "test_a_writer_that_was_succeeded_is_refused",
    "test_one_of_two_writers_at_the_same_moment_is_refused",
    "test_only_the_last_writer_can_be_confirmed",
]

FEW = examples(4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


class Folder(str):
    """A URI with the `/` operator of a path."""

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self}/{name}")


@pytest.fixture
def tmp_path(remote: str) -> Folder:
    return Folder(remote)


def on(server: Server) -> AbstractContextManager[Any]:
    """Send each random history to a new folder on the store."""

    def new_folder() -> AbstractContextManager[str]:
        return nullcontext(server.new_location())

    return mock.patch.object(properties, "memory_folder", new_folder)


def check_history(server: Server, history: list[Batch], data: st.DataObject) -> None:
    with on(server):
        test = properties.test_a_history_is_judged_as_the_reference_does
        test.hypothesis.inner_test(history, 0, 2, 1, data)  # type: ignore[attr-defined]


def check_batches(server: Server, history: list[Batch], mixed: list[bool]) -> None:
    with on(server):
        test = properties.test_batches_that_join_are_judged_as_the_reference_does
        test.hypothesis.inner_test(history, mixed)  # type: ignore[attr-defined]


@given(history=histories(most_batches=8), data=st.data())
@FEW
def test_histories(object_store: Server, remote: str, history: list[Batch], data: st.DataObject) -> None:
    check_history(object_store, history, data)


@given(history=histories(most_batches=5), mixed=st.lists(st.booleans(), min_size=5, max_size=5))
@FEW
def test_batches(object_store: Server, remote: str, history: list[Batch], mixed: list[bool]) -> None:
    check_batches(object_store, history, mixed)


@pytest.mark.torture
@given(history=histories(most_batches=15), data=st.data())
@FEW
def test_long_histories(object_store: Server, remote: str, history: list[Batch], data: st.DataObject) -> None:
    check_history(object_store, history, data)


@pytest.mark.torture
@given(history=histories(most_batches=8), mixed=st.lists(st.booleans(), min_size=8, max_size=8))
@FEW
def test_many_batches(object_store: Server, remote: str, history: list[Batch], mixed: list[bool]) -> None:
    check_batches(object_store, history, mixed)
