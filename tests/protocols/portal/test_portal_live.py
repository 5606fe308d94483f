"""The figures that the script updates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oncebus.broker.addresses import Address
from oncebus.engine.store import IngestReport
from oncebus.model.entities import Subscription
from oncebus.model.messages import NOBODY
from oncebus.protocols.portal import entity_table, overview
from oncebus.protocols.portal.entity_table import FIGURES
from oncebus.protocols.portal.figures import spark_points
from oncebus.protocols.portal.rates import MOST_ENTITIES, RATE_SLOTS, SLOT_SECONDS, SLOTS, SPARK_SLOTS, Rates
from oncebus.values.durations import SECOND
from tests.broker.scenes import message

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


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=40, duplicates=5))
    rates.record(came(1, copies=5))
    # The current slot does not count before it has ended.
    assert rates.per_second(1) == 0.0
    time.slots(1)
    assert (rates.per_second(1), rates.per_second(2)) == (5.0, 0.0)
    time.slots(RATE_SLOTS - 1)
    assert rates.per_second(1) == 5.0
    time.slots(1)
    assert rates.per_second(1) == 0.0


def test_a_small_line_begins_when_the_gateway_started() -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=7))
    assert (rates.spark(1), spark_points(rates.spark(1))) == ([], "")
    time.slots(SPARK_SLOTS)
    rates.record(came(1, new=1, duplicates=1))
    assert rates.spark(1) == [7]
    time.slots(SPARK_SLOTS)
    assert rates.spark(1) == [7, 2]
    assert rates.spark(2) == [0, 0]
    # It ends at the right, and the greatest count is at the top.
    assert spark_points([7, 0]) == "96.6,1.0 100.0,19.0"


@pytest.mark.parametrize("pause", [SPARK_SLOTS, SLOTS - 2 * SPARK_SLOTS, SLOTS, 10 * SLOTS])
def test_old_counts_are_forgotten(pause: int) -> None:
    time = Passing()
    rates = Rates(time)
    rates.record(came(1, new=7))
    time.slots(pause)
    rates.record(came(1, new=1))
    time.slots(SPARK_SLOTS)
    counts = rates.spark(1)
    assert counts[-1] == 1
    assert len(counts) < SLOTS // SPARK_SLOTS
    assert sum(counts) == (8 if pause < SLOTS else 1)


def test_a_limited_number_of_entities_have_rates() -> None:
    time = Passing()
    rates = Rates(time)
    for entity in range(1, MOST_ENTITIES + 2):
        rates.record(came(entity, new=1))
        rates.record(came(1, new=1))
    rates.record(came(NOBODY, discarded=1))
    time.slots(1)
    assert len(rates) == MOST_ENTITIES
    assert rates.per_second(1) == (MOST_ENTITIES + 2) / 10
    assert rates.per_second(2) == 0


def known(series: list[int | None]) -> list[int]:
    return [each for each in series if each is not None]


def test_the_overview_shows_rates_and_remembered_ids(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("orders", requires_duplicate_detection=True)
        await front.topic("news", "all")
        await front.broker.send("orders", [message("1"), message("2"), message("1"), message("3")])
        await front.broker.send("news", [message("1")])
        await front.broker.counts("orders")
        await front.broker.counts("news")
        await front.broker.receive(Address("orders"), 1)
        front.time.advance(6)
        answer = (await visitor.get("live")).json()
        values = answer["values"]
        catalogue = front.broker.catalogue
        orders, news, below = (catalogue.find(each) for each in ("orders", "news", "news/Subscriptions/all"))
        assert orders is not None
        assert news is not None
        assert below is not None
        assert (values["incoming-sum"], values["dropped-sum"]) == ("5 in 10 minutes", "1")
        assert values["dropped-share"] == "20% of incoming, in 10 minutes"
        assert (values["backlog"], values["dead"]) == ("4", "0")
        assert (values["ids"], values["health"], answer["states"]["health"]) == ("3", "Healthy", "good")
        shown = {each.id: [values[f"{each.id}-{name}"] for name in FIGURES] for each in (orders, news, below)}
        assert shown[orders.id] == ["0.4", "25%", "3", "6.0 s", "0", "polling"]
        assert shown[news.id] == ["0.1", "–", "–", "–", "–", "–"]
        assert shown[below.id] == ["0.1", "–", "1", "6.0 s", "0", "none"]
        # Messages wait there, and nobody ever received any.
        assert answer["states"][f"{below.id}-consumers"] == "bad"
        assert sum(known(answer["plot"]["series"]["duplicates"])) == 1
        assert sum(known(answer["plot"]["series"]["outgoing"])) == 1
        # Nothing is known about the time before the start.
        assert answer["plot"]["series"]["new"][:100] == [None] * 100
        # The page shows the same figures without the script.
        page = await visitor.get()
        assert f'data-value="{orders.id}-duplicates" class="figure" data-state="some">25%<' in page.text
        assert "Remembered ids 3" in words(page)
        assert "news / all Subscription" in words(page)
        assert "news Topic, 1 subscription off" in words(page)
        assert 'title="Of the incoming messages since the entity was created"' in page.text

    visit(tmp_path, play)


def test_a_longer_range_keeps_what_a_shorter_one_has_forgotten(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("orders")
        await front.broker.send("orders", [message("1"), message("2")])
        await front.broker.counts("orders")
        front.time.advance(4)

        async def sums(page: str, path: str | None) -> dict[str, str]:
            answers = {span: (await visitor.get(page, path=path, range=span)).json() for span in ("10m", "1h", "24h")}
            return {span: answer["values"]["incoming-sum"] for span, answer in answers.items()}

        # The current slots of the longer ranges, which are not in their plots, count too.
        for page, path in (("live", None), ("entity/live", "orders")):
            assert await sums(page, path) == {"10m": "2 in 10 minutes", "1h": "2 in 1 hour", "24h": "2 in 24 hours"}
        front.time.advance(20 * 60)
        for page, path in (("live", None), ("entity/live", "orders")):
            assert await sums(page, path) == {"10m": "0 in 10 minutes", "1h": "2 in 1 hour", "24h": "2 in 24 hours"}
        assert (await visitor.get(range="1y")).status_code == 400

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
        assert set(topic["plot"]["series"]) == {"new", "duplicates"}
        assert sum(known(topic["plot"]["series"]["new"])) == 2
        below = (await visitor.get("entity/live", path="news/Subscriptions/all")).json()
        assert (below["values"]["incoming"], below["values"]["active"]) == ("2", "2")
        assert sum(known(below["plot"]["series"]["new"])) == 2
        assert (below["values"]["oldest"], below["values"]["consumers"]) == ("oldest 4.0 s", "none")
        assert below["values"]["consumers-note"] == "messages wait, nobody receives"
        page = words(await visitor.get("entity", path="news"))
        assert "Incoming 3 New 2" in page
        assert "Duplicates, dropped 1" in page
        assert "a MessageId is remembered for 10 minutes" in page

    visit(tmp_path, play)


def test_a_consumer_that_stopped_is_visible(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        await front.queue("orders")
        queue = front.broker.catalogue.queue("orders")

        async def consumers() -> tuple[str, str | None]:
            answer = (await visitor.get("live")).json()
            name = f"{queue.id}-consumers"
            return answer["values"][name], answer["states"].get(name)

        assert await consumers() == ("none", None)
        front.broker.consumers.attach(queue.id)
        assert await consumers() == ("1", "good")
        front.broker.consumers.detach(queue.id)
        assert await consumers() == ("polling", "good")
        of_entity = (await visitor.get("entity/live", path="orders")).json()["values"]
        assert (of_entity["consumers"], of_entity["consumers-note"]) == ("polling", "asked in the last minute")
        front.time.advance(90)
        assert await consumers() == ("none", None)
        await front.broker.send("orders", [message("1")])
        await front.broker.counts("orders")
        assert await consumers() == ("none", "bad")
        of_entity = (await visitor.get("entity/live", path="orders")).json()["values"]
        assert of_entity["consumers"] == "none for 1 min 30 s"

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
    for module in (overview, entity_table):
        monkeypatch.setattr(module, "PAGE", 3)

    async def play(visitor: Visitor) -> None:
        for number in range(7):
            await visitor.front.queue(f"queue-{number}")
        await visitor.front.topic("Zebra")

        async def listed(**query: Any) -> list[str]:
            page = await visitor.get(**query)
            return re.findall(r'entity\?path=[^"]*">([^<]*)</a>', page.text)

        assert await listed() == ["queue-0", "queue-1", "queue-2"]
        assert await listed(page=2) == ["queue-6", "Zebra"]
        assert await listed(page=9) == []
        assert await listed(order="descending") == ["Zebra", "queue-6", "queue-5"]
        assert await listed(find="ZEB") == ["Zebra"]
        assert await listed(find="<script>") == []
        assert "1 to 3 of 8" in words(await visitor.get())
        values = (await visitor.get("live", find="zeb")).json()["values"]
        zebra = visitor.front.broker.catalogue.topic("Zebra").id
        assert {name for name in values if name[0].isdigit()} == {f"{zebra}-{name}" for name in FIGURES}

    visit(tmp_path, play, pipeline=False)


def test_entities_are_sorted_by_their_figures(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        front = visitor.front
        for name, count in (("a", 1), ("b", 3), ("c", 2)):
            await front.queue(name, requires_duplicate_detection=True)
            await front.broker.send(name, [message(f"{number}") for number in range(count)])
            await front.broker.send(name, [message("0")] * (4 - count))
            await front.broker.counts(name)
        front.time.advance(2)

        async def listed(sort: str, order: str | None = "descending") -> list[str]:
            page = await visitor.get(sort=sort, order=order)
            assert f'aria-sort="{order or "ascending"}"' in page.text
            return re.findall(r'entity\?path=[^"]*">([^<]*)</a>', page.text)

        assert await listed("backlog") == ["b", "c", "a"]
        assert await listed("backlog", None) == ["a", "c", "b"]
        assert await listed("duplicates") == ["a", "c", "b"]
        # Equal ones stay in the order of their names.
        assert await listed("rate") == await listed("dead") == await listed("kind") == ["a", "b", "c"]
        assert (await visitor.get(sort="colour")).status_code == 400

    visit(tmp_path, play)


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
        await visitor.front.broker.change(lambda catalogue, _: catalogue.delete(one))
        await visitor.front.broker.change(
            lambda catalogue, now: catalogue.create(Subscription(topic="news", name="two"), now)
        )
        assert "two" in words(await visitor.get("entity", path="news"))
        assert (await visitor.get("entity/live", path="news/Subscriptions/one")).status_code == 404

    visit(tmp_path, play, pipeline=False)
