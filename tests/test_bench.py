"""The parts of the benchmarks that decide what a figure means: statistics, order, the noise, and what a load sends."""

from __future__ import annotations

import io
import os

import pytest
from bench.figures import Figures, Spread, shown, spread, turns
from bench.latency import percentiles
from bench.noise import Noise, measure, verdict
from bench.served import cpu_below, resident_bytes, since
from rich.console import Console

from oncebus import amqp


def text_of(figures: Figures, *contenders: str) -> str:
    written = io.StringIO()
    Console(width=160, file=written).print(figures.table("title", contenders[0], contenders))
    return written.getvalue()


def test_a_spread_is_the_median_and_the_range() -> None:
    assert spread([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)
    assert str(spread([5.0])) == "5.00 (5.00–5.00)"


@pytest.mark.parametrize(("figure", "text"), [(12345.6, "12,346"), (99.96, "100.0"), (12.34, "12.3"), (0.123, "0.12")])
def test_figures_are_shown_with_about_three_digits(figure: float, text: str) -> None:
    assert shown(figure) == text


def test_another_contender_begins_in_each_round() -> None:
    names = ["a", "b", "c"]
    assert [turns(names, at) for at in range(4)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert turns([], 1) == []


def test_ratios_compare_values_of_the_same_round_only() -> None:
    figures = Figures()
    for at, (ours, theirs) in enumerate([(10.0, 5.0), (100.0, 50.0), (30.0, 10.0)]):
        figures.note("rate", "us", at, ours)
        figures.note("rate", "them", at, theirs)
    figures.note("rate", "us", 3, 1.0)
    assert figures.ratio("rate", "us", "them") == Spread(2.0, 2.0, 3.0)
    assert figures.of("rate", "us") == Spread(20.0, 1.0, 100.0)


def test_a_ratio_to_nothing_is_no_ratio() -> None:
    figures = Figures()
    figures.note("idle", "us", 0, 1.0)
    figures.note("idle", "them", 0, 0.0)
    assert figures.ratio("idle", "us", "them") is None
    assert figures.ratio("idle", "us", "nobody") is None
    assert figures.of("idle", "nobody") is None


def test_the_table_has_a_row_for_each_figure_and_blanks_for_what_was_not_measured() -> None:
    figures = Figures()
    figures.note("rate", "us", 0, 40.0)
    figures.note("rate", "them", 0, 10.0)
    figures.note("batches", "us", 0, 7.0)
    lines = text_of(figures, "us", "them").splitlines()
    (rate,) = [line for line in lines if "rate" in line]
    assert [cell.strip() for cell in rate.split("│")[1:-1]] == [
        "rate", "40.0 (40.0–40.0)", "10.0 (10.0–10.0)", "4.00 (4.00–4.00)"
    ]  # fmt: skip
    (batches,) = [line for line in lines if "batches" in line]
    assert [cell.strip() for cell in batches.split("│")[1:-1]] == ["batches", "7.00 (7.00–7.00)", "", ""]


def test_the_noise_is_measured_and_told() -> None:
    noise = measure()
    assert noise.loop > 0
    assert 0 < noise.core <= 1
    assert noise.sync > 0
    text = verdict([Noise(100, 1.0, 0.5), Noise(150, 0.8, 1.5), Noise(120, 0.9, 1.0)])
    assert "120 ms (100 to 150: the slowest 1.50 times the fastest)" in text
    assert "80% of its time or more" in text
    assert "1.00 ms (0.50 to 1.50)" in text


def test_percentiles_are_in_milliseconds_from_the_send() -> None:
    sent = [float(at) for at in range(100)]
    found = percentiles(
        {"sent": sent, "accepted": [at + 0.001 for at in sent], "arrived": [at + (at + 1) / 1000 for at in sent]}
    )
    assert (found["p50"], found["p99"], found["worst"]) == (51.0, 100.0, 100.0)
    assert found["accepted p99"] == 1.0


def test_the_cpu_time_and_the_memory_of_a_process_are_known_by_its_role() -> None:
    before = cpu_below(os.getpid(), "this")["this"]
    while cpu_below(os.getpid(), "this")["this"] == before:
        sum(range(10_000))
    assert resident_bytes(os.getpid()) > 1_000_000


def test_what_was_spent_is_told_by_role_and_in_all() -> None:
    assert since({"gateway": 1.0, "ended": 1.0}, {"gateway": 1.5, "Java": 2.0}) == {
        "Java": 2.0, "gateway": 0.5, "all": 2.5
    }  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["", "_AMQ_DUPL_ID"])
def test_each_message_of_a_load_has_an_id_of_its_own(monkeypatch: pytest.MonkeyPatch, batch: int, name: str) -> None:
    monkeypatch.setenv("QUEUE", "q")
    monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://localhost:1")
    from bench import amqp_load

    monkeypatch.setattr(amqp_load, "PROPERTY", name)
    parcel = amqp_load.Parcel(batch)
    ids = []
    for payload in (parcel.fresh(), parcel.fresh()):
        for one in amqp.split_batch(payload) if batch > 1 else [payload]:
            parts = amqp.split(one)
            identity = amqp.message_id(parts.head)
            ids.append(identity)
            assert amqp.application_properties(parts.head) == ({name: identity} if name else {})
            assert bool(parts.header.durable) == bool(name)
    assert len(set(ids)) == 2 * batch
