from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.engine.outbox import Batch, Outbox, OutboxPart, write_part
from oncebus.model.entities import Catalogue, Rule, SqlAction, SqlFilter, TrueFilter
from oncebus.model.messages import NOBODY, Fate, LogRow, Result, place_of
from oncebus.model.packed import pack_results, unpack_results
from oncebus.pipeline import route as module
from oncebus.pipeline import rules as rules_module
from oncebus.pipeline.detect import Original
from oncebus.pipeline.route import route
from oncebus.pipeline.rules import Routes
from tests.pipeline.judged_rows import QUEUE, TOPIC, catalogue, head, row
from tests.properties import examples

ALL = [Rule()]


def routed(
    rows: Sequence[LogRow], *versions: Catalogue, originals: Mapping[int, Original] | None = None
) -> list[Result]:
    """Return the results. The first catalogue is version 1. `originals` has those of duplicates, by position."""
    found = [(originals or {}).get(each.position) for each in rows]
    results = route(rows, found, lambda number: Routes(versions[number - 1]))
    assert results == sorted(results, key=place_of), "the store needs them in this order"
    assert unpack_results(pack_results(results)) == results
    return results


def fates(results: Sequence[Result]) -> list[tuple[int, Fate, int | None]]:
    return [(each.row.position, each.fate, each.destination) for each in results]


def test_each_row_gets_its_fate() -> None:
    rows = [
        row(1, entity=QUEUE),
        row(2, entity=QUEUE),
        row(3),
        row(4, entity=77),
        row(5, entity=NOBODY),
        row(6, scheduled=10**18),
        row(7, entity=QUEUE, scheduled=10**18),
    ]
    found = routed(rows, catalogue(ALL, []), originals={2: Original(1, 5)})
    assert fates(found) == [
        (1, Fate.DELIVERED, QUEUE),
        (2, Fate.DUPLICATE, None),
        (3, Fate.DELIVERED, 3),
        (4, Fate.DISCARDED, None),
        (6, Fate.DELIVERED, TOPIC),
        (7, Fate.DELIVERED, QUEUE),
    ]
    assert [(each.original_sequence, each.original_time) for each in found[1:3]] == [(1, 5), (None, None)]
    assert [each.row.body is None for each in found] == [False, True, False, True, False, False]


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
    assert plain.row.message_id == "m1"
    assert changed.row.message_id == "x"
    before, after = plain.row._asdict(), changed.row._asdict()
    assert {name for name in before if before[name] != after[name]} == {"message_id", "head", "size"}
    assert other.row.message_id == "m2"


@pytest.mark.parametrize("broken", [b"\xff", b"\x00\x53\x74\xd1\xff\xff", b"\x00\x53\x73\xc0\x02\x01\x41"])
def test_a_row_with_a_broken_head_is_quarantined_whole(broken: bytes) -> None:
    rules = [Rule("r", SqlFilter("a = 1"))]
    found = routed([row(1, head=head({"a": 1})), row(2, head=broken), row(3, head=head({"a": 1}))], catalogue(rules))
    assert fates(found) == [(1, Fate.DELIVERED, 3), (2, Fate.QUARANTINED, None), (3, Fate.DELIVERED, 3)]
    assert (found[1].row.head, found[1].row.body, found[1].reason) == (broken, b"body", "DecodeError")
    assert found[1].description


def test_a_row_with_an_unexpected_error_is_quarantined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    copies_of = rules_module.copies_of

    def fail(values: Any, targets: Any) -> Any:
        if values.position == 2:
            raise ZeroDivisionError("odd")
        return copies_of(values, targets)

    monkeypatch.setattr(module, "copies_of", fail)
    found = routed([row(1), row(2), row(3)], catalogue([Rule("r", SqlFilter("1=1"))]))
    assert fates(found) == [(1, Fate.DELIVERED, 3), (2, Fate.QUARANTINED, None), (3, Fate.DELIVERED, 3)]
    assert (found[1].reason, found[1].description) == ("ZeroDivisionError", "odd")


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
def test_a_batch_that_is_run_again_gives_the_identical_results(
    subscriptions: list[list[Rule]], rows: list[tuple[int, int, bool]]
) -> None:
    made = catalogue(*subscriptions)
    batch = [row(position, entity=entity, head=head({"n": n})) for position, (entity, n, _) in enumerate(rows, start=1)]
    originals = {
        position: Original(0, 0) for position, (_, _, is_duplicate) in enumerate(rows, start=1) if is_duplicate
    }
    once = routed(batch, made, originals=originals)
    assert routed(batch, made, originals=originals) == once
    # No message is lost: each row has a fate, and counts as one message however many copies it has.
    assert {each.row.position for each in once} == {*range(1, len(rows) + 1)}


def test_a_batch_without_results_still_makes_an_entry(tmp_path: Any) -> None:
    made = route([row(1, entity=NOBODY)], [None], lambda _: Routes(catalogue()))
    outbox = Outbox(tmp_path)
    write_part(outbox.begin().drafts, OutboxPart(1, 1, 0, 1), made, Batch("q", 0))
    entry = outbox.next_entry(0)
    assert entry is not None
    assert entry.rows() == []
