from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.engine.outbox import Batch, Outbox, OutboxPart, write_part
from oncebus.model.entities import Catalogue, Rule, SqlAction, SqlFilter, TrueFilter
from oncebus.model.messages import NOBODY, OUTBOX_SCHEMA, Fate
from oncebus.pipeline import route as module
from oncebus.pipeline import rules as rules_module
from oncebus.pipeline.route import route
from oncebus.pipeline.rules import Routes
from tests.pipeline.judged_rows import QUEUE, TOPIC, catalogue, head, row, table
from tests.properties import examples

ALL = [Rule()]


def routed(rows: Sequence[dict[str, Any]], *versions: Catalogue) -> list[dict[str, Any]]:
    """Return the outbox's rows, in the order in which the store gets them. The first catalogue is version 1."""
    made = route(table(rows), lambda number: Routes(versions[number - 1]))
    made = made.select(OUTBOX_SCHEMA.names).cast(OUTBOX_SCHEMA)
    found: list[dict[str, Any]] = made.sort_by([("position", "ascending"), ("destination", "ascending")]).to_pylist()
    return found


def fates(rows: Sequence[dict[str, Any]]) -> list[tuple[int, Fate, int | None]]:
    return [(each["position"], Fate(each["fate"]), each["destination"]) for each in rows]


def test_each_row_gets_its_fate() -> None:
    rows = [
        row(1, entity=QUEUE),
        row(2, entity=QUEUE, is_duplicate=True, original_sequence=1, original_time=5),
        row(3),
        row(4, entity=77),
        row(5, entity=NOBODY),
        row(6, scheduled=10**18),
        row(7, entity=QUEUE, scheduled=10**18),
    ]
    found = routed(rows, catalogue(ALL, []))
    assert fates(found) == [
        (1, Fate.DELIVERED, QUEUE),
        (2, Fate.DUPLICATE, None),
        (3, Fate.DELIVERED, 3),
        (4, Fate.DISCARDED, None),
        (6, Fate.DELIVERED, TOPIC),
        (7, Fate.DELIVERED, QUEUE),
    ]
    assert [(each["original_sequence"], each["original_time"]) for each in found[1:3]] == [(1, 5), (None, None)]
    assert [each["body"] is None for each in found] == [False, True, False, True, False, False]


def test_a_topic_without_subscriptions() -> None:
    assert fates(routed([row(1)], catalogue())) == [(1, Fate.UNROUTED, None)]
    assert fates(routed([row(1)], catalogue([], [Rule("no", SqlFilter("1=0"))]))) == [(1, Fate.UNROUTED, None)]


def test_each_row_is_routed_by_the_catalogue_it_was_accepted_under() -> None:
    versions = catalogue(), catalogue(ALL), catalogue(ALL, ALL)
    rows = [row(position, catalogue=version) for position, version in ((1, 1), (2, 3), (3, 2), (4, 1))]
    assert fates(routed(rows, *versions)) == [
        (1, Fate.UNROUTED, None),
        (2, Fate.DELIVERED, 3),
        (2, Fate.DELIVERED, 4),
        (3, Fate.DELIVERED, 3),
        (4, Fate.UNROUTED, None),
    ]


def test_copies_differ_only_in_the_changes_of_their_action() -> None:
    rules = [Rule("plain", SqlFilter("1=1")), Rule("set", TrueFilter(), SqlAction("SET sys.MessageId = 'x'"))]
    plain, changed, other = routed([row(1, head=head(message_id="m1")), row(2, entity=QUEUE)], catalogue(rules))
    assert plain["message_id"] == "m1"
    assert changed["message_id"] == "x"
    assert {name for name in plain if plain[name] != changed[name]} == {"message_id", "head", "size"}
    assert other["message_id"] == "m2"


@pytest.mark.parametrize("broken", [b"\xff", b"\x00\x53\x74\xd1\xff\xff", b"\x00\x53\x73\xc0\x02\x01\x41"])
def test_a_row_with_a_broken_head_is_quarantined_whole(broken: bytes) -> None:
    rules = [Rule("r", SqlFilter("a = 1"))]
    found = routed([row(1, head=head({"a": 1})), row(2, head=broken), row(3, head=head({"a": 1}))], catalogue(rules))
    assert fates(found) == [(1, Fate.DELIVERED, 3), (2, Fate.QUARANTINED, None), (3, Fate.DELIVERED, 3)]
    assert (found[1]["head"], found[1]["body"], found[1]["reason"]) == (broken, b"body", "DecodeError")
    assert found[1]["description"]


def test_a_row_with_an_unexpected_error_is_quarantined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    copies_of = rules_module.copies_of

    def fail(values: Any, targets: Any) -> Any:
        if values["position"] == 2:
            raise ZeroDivisionError("odd")
        return copies_of(values, targets)

    monkeypatch.setattr(module, "copies_of", fail)
    found = routed([row(1), row(2), row(3)], catalogue([Rule("r", SqlFilter("1=1"))]))
    assert fates(found) == [(1, Fate.DELIVERED, 3), (2, Fate.QUARANTINED, None), (3, Fate.DELIVERED, 3)]
    assert (found[1]["reason"], found[1]["description"]) == ("ZeroDivisionError", "odd")


RULES = st.lists(
    st.sampled_from(
        [
            Rule("all"),
            Rule("some", SqlFilter("n > 2")),
            Rule("id", TrueFilter(), SqlAction("SET made = newid(); SET sys.Label = 'x'")),
            Rule("fails", SqlFilter("1 / n = 1")),
        ]
    ),
    max_size=3,
    unique_by=lambda rule: rule.name,
)


@examples(60)
@given(
    st.lists(RULES, max_size=3),
    st.lists(st.tuples(st.sampled_from([QUEUE, TOPIC, 77]), st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
)
def test_a_batch_that_is_run_again_gives_the_identical_table(
    subscriptions: list[list[Rule]], rows: list[tuple[int, int, bool]]
) -> None:
    made = catalogue(*subscriptions)
    batch = table(
        [
            row(position, entity=entity, is_duplicate=is_duplicate, head=head({"n": n}))
            for position, (entity, n, is_duplicate) in enumerate(rows, start=1)
        ]
    )
    once = route(batch, lambda _: Routes(made))
    again = route(batch, lambda _: Routes(made))
    assert once.equals(again)
    # The chunks of the table do not matter.
    apart = pa.concat_tables([batch.slice(at, 1) for at in range(len(rows))])
    assert route(apart, lambda _: Routes(made)).equals(once)
    # No message is lost: each row has a fate, and counts as one message however many copies it has.
    assert {*once["position"].to_pylist()} == {*range(1, len(rows) + 1)}


def test_a_batch_without_outbox_rows_still_makes_an_entry(tmp_path: Any) -> None:
    made = route(table([row(1, entity=NOBODY)]), lambda _: Routes(catalogue()))
    outbox = Outbox(tmp_path)
    write_part(outbox.begin().drafts, OutboxPart(1, 1, 0, 1), made, Batch("q", 0))
    entry = outbox.next_entry(0)
    assert entry is not None
    assert entry.rows().num_rows == 0
