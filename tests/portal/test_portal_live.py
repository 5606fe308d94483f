"""The figures that the script updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.scenes import message
from oncebus.durations import SECOND
from oncebus.entities import Subscription
from oncebus.messages import NOBODY
from oncebus.portal import overview
from oncebus.portal.rates import MOST_ENTITIES, RATE_SLOTS, SLOT_SECONDS, SLOTS, Rates
from oncebus.store import IngestReport

from .visitor import Visitor, visit, words


class Passing:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 7 * SECOND

    def __call__(self) -> int:
        return self.now

    def slots(self, count: int) -> None:
        self.now += count * SLOT_SECONDS * SECOND


def came(entity: int, **counted: int) -> IngestReport:
    return IngestReport(counted={entity: counted})


def test_samples_are_kept_by_slot_and_a_slot_shows_when_it_has_ended() -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=3, duplicates=1))
    rates.record(came(1, new=2, copies=5))
    assert sum(rates.samples(1).new) == 0
    time.slots(1)
    rates.record(came(2, new=10))
    samples = rates.samples(1)
    assert (samples.new[-1], samples.duplicates[-1], samples.copies[-1]) == (5, 1, 5)
    assert len(samples.new) == SLOTS - 1
    time.slots(1)
    assert rates.samples(1).new[-2:] == [5, 0]
    assert rates.samples().new[-2:] == [5, 10]
    assert rates.samples(2).new[-2:] == [0, 10]


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=50, duplicates=5))
    time.slots(1)
    assert rates.samples(1).per_second() == (5.0, 0.5, 0.0)
    time.slots(RATE_SLOTS - 1)
    assert rates.samples(1).per_second() == (5.0, 0.5, 0.0)
    time.slots(1)
    assert rates.samples(1).per_second() == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("pause", [1, SLOTS - 1, SLOTS, SLOTS + 1, 10 * SLOTS])
def test_old_samples_are_forgotten(pause: int) -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=7))
    time.slots(pause)
    rates.record(came(1, new=1))
    time.slots(1)
    accepted = rates.samples(1).new
    assert accepted[-1] == 1
    assert sum(accepted) == (8 if pause < SLOTS - 1 else 1)


def test_a_limited_number_of_entities_have_samples() -> None:
    time = Passing()
    rates = Rates(time)
    for entity in range(1, MOST_ENTITIES + 2):
        rates.record(came(entity, new=1))
        rates.record(came(1, new=1))
    rates.record(came(NOBODY, discarded=1))
    time.slots(1)
    assert len(rates) == MOST_ENTITIES
    assert sum(rates.samples(1).new) == MOST_ENTITIES + 2
    assert sum(rates.samples(2).new) == 0
    assert sum(rates.samples().new) == 2 * (MOST_ENTITIES + 1)


def test_the_overview_shows_rates_and_remembered_ids(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("orders", requires_duplicate_detection=True)
        await front.topic("news", "all")
        await front.broker.send("orders", [message("1"), message("2"), message("1"), message("3")])
        await front.broker.send("news", [message("1")])
        await front.broker.counts("orders")
        await front.broker.counts("news")
        front.time.advance(6)
        answer = (await visitor.get("live")).json()
        values = answer["values"]
        orders, news = front.broker.catalogue.queue("orders").id, front.broker.catalogue.topic("news").id
        assert (values["new-rate"], values["dropped-rate"], values["copies-rate"]) == ("0.4", "0.1", "0.1")
        assert (values["ids"], values["health"], answer["states"]["health"]) == ("3", "Healthy", "good")
        assert [values[f"{orders}-{name}"] for name in ("active", "dead", "new", "dropped")] == [
            "3",
            "0",
            "3",
            "1",
        ]
        assert [values[f"{news}-{name}"] for name in ("active", "dead", "new", "dropped")] == ["1", "0", "1", "0"]
        assert sum(answer["plot"]["series"]["dropped"]) == 1
        # The page shows the same figures without the script.
        page = await visitor.get()
        assert f'data-value="{orders}-dropped" class="figure">1<' in page.text
        assert "Remembered ids 3" in words(page)
        assert "Topic, 1 subscription" in words(page)

    visit(tmp_path, play)


def test_an_entity_shows_its_own_figures(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.topic("news", "all", requires_duplicate_detection=True)
        await front.broker.send("news", [message("1"), message("1"), message("2")])
        await front.broker.counts("news")
        front.time.advance(4)
        topic = (await visitor.get("entity/live", path="news")).json()
        assert (topic["values"]["new"], topic["values"]["duplicates"]) == ("2", "1")
        assert set(topic["plot"]["series"]) == {"new", "dropped"}
        assert sum(topic["plot"]["series"]["new"]) == 2
        below = (await visitor.get("entity/live", path="news/Subscriptions/all")).json()
        assert (below["values"]["incoming"], below["values"]["active"]) == ("2", "2")
        assert sum(below["plot"]["series"]["copies"]) == 2
        page = words(await visitor.get("entity", path="news"))
        assert "Incoming 3 New 2" in page
        assert "Duplicates, dropped 1" in page
        assert "a MessageId is remembered for 10 minutes" in page

    visit(tmp_path, play)


def test_a_stopped_pipeline_is_shown_and_pages_do_not_wait_for_it(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue()
        await front.broker.send("orders", [message("1")])
        front.time.advance(31)
        answer = (await visitor.get("live")).json()
        assert answer["values"]["health"] == "Unhealthy"
        assert "has waited for the pipeline for 31 seconds" in answer["values"]["health-note"]
        assert answer["states"]["health"] == "bad"

    visit(tmp_path, play, pipeline=False)


def test_long_lists_come_in_pages_and_can_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "PAGE", 3)

    async def play(visitor: Visitor) -> None:
        for number in range(7):
            await visitor.front.queue(f"queue-{number}")
        await visitor.front.topic("Zebra")

        async def listed(**query: Any) -> list[str]:
            page = await visitor.get(**query)
            names = [f"queue-{number}" for number in range(7)] + ["Zebra"]
            return [name for name in names if f">{name}</a>" in page.text]

        assert await listed() == ["queue-0", "queue-1", "queue-2"]
        assert await listed(page=2) == ["queue-6", "Zebra"]
        assert await listed(page=9) == []
        assert await listed(find="ZEB") == ["Zebra"]
        assert await listed(find="<script>") == []
        assert "1 to 3 of 8" in words(await visitor.get())
        values = (await visitor.get("live", find="zeb")).json()["values"]
        zebra = visitor.front.broker.catalogue.topic("Zebra").id
        assert {name for name in values if name[0].isdigit()} == {
            f"{zebra}-{name}" for name in ("active", "dead", "new", "dropped")
        }

    visit(tmp_path, play, pipeline=False)


def test_the_total_of_very_many_entities_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_MOST_COUNTED", 2)

    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "one", "two")
        topic = visitor.front.broker.catalogue.topic("news").id
        values = (await visitor.get("live")).json()["values"]
        assert (values[f"{topic}-active"], values[f"{topic}-new"]) == ("–", "0")

    visit(tmp_path, play, pipeline=False)


def test_a_ledger_that_cannot_be_read_does_not_spoil_the_page(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        # The ledger is damaged while the broker runs, because a damaged one prevents the start.
        (tmp_path / "ledger").mkdir()
        (tmp_path / "ledger" / "generation-000001.json").write_text("{")
        visitor.front.time.advance(5)
        page = await visitor.get()
        assert (page.status_code, "Remembered ids unknown" in words(page)) == (200, True)

    visit(tmp_path, play, pipeline=False)


def test_the_ledger_is_read_at_most_once_in_some_seconds(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        async def ids() -> str:
            value: str = (await visitor.get("live")).json()["values"]["ids"]
            return value

        await visitor.front.queue(requires_duplicate_detection=True)
        assert await ids() == "0"
        await visitor.front.broker.send("orders", [message("1")])
        await visitor.front.broker.counts("orders")
        assert await ids() == "0"
        visitor.front.time.advance(5)
        assert await ids() == "1"

    visit(tmp_path, play)


def test_a_subscription_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.front.topic("news", "one")
        one = Subscription(topic="news", name="one")
        await visitor.front.broker.change(lambda catalogue, _: catalogue.deleted(one))
        await visitor.front.broker.change(
            lambda catalogue, now: catalogue.created(Subscription(topic="news", name="two"), now)
        )
        assert "two" in words(await visitor.get("entity", path="news"))
        assert (await visitor.get("entity/live", path="news/Subscriptions/one")).status_code == 404

    visit(tmp_path, play, pipeline=False)
