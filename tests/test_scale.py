"""The model of docs/reference/windows.md agrees with a real ledger, and the page with the program that makes it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from bench import scale
from bench.scale_counted import count, memory_folder
from bench.scale_model import AZURE, CHUNK, DAY, PRICES, S3, Ledger, Load, Merging

from oncebus.ledger import merging, tidying

SMALL = Merging(full=4_000, least_rewritten=100)
"""Runs are full so early that a short simulation has full ones. The rules are those of the real ledger."""

CLOSE, SHORT = 0.05, 0.08
"""How far apart the model and a count may be: for the long simulations of the page, and for the short ones here.

The model has averages over whole cycles of merges, for batches of the same size. A simulation ends within a cycle, and
its batches differ by a fifth. A short one has few of the largest runs, and one more or less of them counts.
"""


@contextmanager
def small_runs() -> Iterator[None]:
    choose, rewrite = merging.choose_merge, merging.choose_rewrite
    with (
        mock.patch.object(tidying, "choose_merge", lambda sizes: choose(sizes, full=SMALL.full)),
        mock.patch.object(
            tidying,
            "choose_rewrite",
            lambda runs, horizon: rewrite(runs, horizon, least=SMALL.least_rewritten),
        ),
    ):
        yield


@pytest.mark.parametrize(
    ("load", "levels"),
    [
        pytest.param(Load(rate=2, window=9_000, interval=60, parts=1), 2, id="runs become full"),
        pytest.param(Load(rate=4, window=2_400, interval=60, parts=2, machines=3), 1, id="the window ends first"),
    ],
)
def test_the_model_agrees_with_a_ledger(load: Load, levels: int) -> None:
    model = Ledger(load, SMALL)
    assert model.levels == levels
    with small_runs(), memory_folder() as folder:
        found = count(load, S3, warm_up=load.window, counted=128 * 60, folder=folder)
    counts = found.counts
    compared = {
        "new ids": (model.tasks_per_day * model.new_ids, found.per_day(found.new_ids)),
        "ids": (model.stored_ids, statistics.fmean(found.ids)),
        "runs": (model.runs_per_part * load.parts, statistics.fmean(found.runs)),
        "files": (model.files, statistics.fmean(found.files)),
        "files a day": (model.files_per_day, found.per_day(counts.published)),
        "deleted a day": (model.files_per_day, found.per_day(counts.deleted)),
        "bytes a day": (model.bytes_per_day, found.per_day(counts.bytes_written)),
        "GET a day": (model.gets_per_day, found.per_day(counts.gets)),
        "bytes read a day": (model.bytes_read_per_day, found.per_day(counts.bytes_read)),
    }
    assert {name: pytest.approx(real, rel=SHORT) for name, (_, real) in compared.items()} == {
        name: expected for name, (expected, _) in compared.items()
    }
    # Nothing is averaged here.
    assert found.per_day(counts.scans) == model.lists_per_day(S3)


def test_the_counts_of_the_page_agree_with_the_model() -> None:
    results = json.loads(scale.RESULTS.read_text())["counted"]
    assert list(results) == list(scale.SIMULATIONS)
    for title, (load, _) in scale.SIMULATIONS.items():
        assert results[title] == pytest.approx(scale.modelled(load), rel=CLOSE), title


@pytest.mark.torture
@pytest.mark.parametrize("title", scale.SIMULATIONS)
def test_the_counts_of_the_page_can_be_counted_again(title: str) -> None:
    load, seconds = scale.SIMULATIONS[title]
    assert scale.counted(load, seconds) == pytest.approx(json.loads(scale.RESULTS.read_text())["counted"][title])


def test_the_page_has_the_tables_of_the_program() -> None:
    made, page = scale.tables(), scale.PAGE.read_text()
    assert scale.with_tables(page, made) == page
    for name, text in made.items():
        assert f"<!-- table: {name} -->\n\n{text}\n\n<!-- end of table -->" in page
    assert PRICES in page


def test_an_id_is_written_once_per_tier_and_a_little_more_when_it_is_forgotten() -> None:
    ledger = Ledger(Load(rate=1_000, window=7 * DAY, interval=10, parts=2))
    # 4,500 new ids, then 36,000, 288,000 and 2.3 million.
    assert (ledger.new_ids, ledger.levels, ledger.span) == (4_500, 3, 512)
    assert 4 < ledger.amplification < 4 + 1 / 3 + 0.01
    assert ledger.ids == 1_000 * 0.9 * 7 * DAY


def test_large_batches_are_not_merged() -> None:
    ledger = Ledger(Load(rate=1_000_000, window=DAY, interval=60, parts=16))
    assert (ledger.levels, ledger.span) == (0, 1)
    assert ledger.runs_per_part == pytest.approx(DAY / 60 + 8)


@pytest.mark.parametrize(("size", "on_s3", "on_azure"), [(1, 1, 1), (CHUNK, 1, 1), (CHUNK + 1, 4, 3)])
def test_a_large_object_is_put_in_pieces(size: int, on_s3: int, on_azure: int) -> None:
    assert (S3.puts(size), AZURE.puts(size)) == (on_s3, on_azure)


def test_a_listing_costs_a_request_per_page() -> None:
    ledger = Ledger(Load(rate=100_000, window=7 * DAY, interval=10, parts=8))
    assert 7_000 < ledger.files < 8_000
    assert (ledger.pages(S3), ledger.pages(AZURE)) == (8, 2)
    # 8,640 batches of 8 tasks, which list twice, with two scans each.
    assert ledger.lists_per_day(S3) == 8_640 * 8 * 2 * 2 * 8
    assert ledger.dollars(S3).lists == pytest.approx(30 * ledger.lists_per_day(S3) * 5e-6)


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.2"), (3, "3"), (950, "950"), (12_345, "12 k"), (5.4e6, "5.4 M"), (2.33e12, "2.3 T")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert scale.number(value) == text
