"""The pages of dropped duplicates, of one entity or of all.

They show which messages were dropped, which original each repeated, how late it was, and which ids repeat most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from oncebus.engine.store import Duplicate, Found, SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Queue, Subscription, Topic
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.forgets import forget_form, forgets_table
from oncebus.protocols.portal.forms import Form, hidden, search_form, text_field
from oncebus.protocols.portal.layout import empty, follow_box, further, ranges, tile, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, foreign, join_markup, tag
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import ago, count_in_words, number, span
from oncebus.values.durations import DAY, HOUR, MINUTE

PAGE = 50
TALLIED = 2_000
"""How many of the newest duplicates the page looks at for the ids that repeat most and for the times."""
MOST_IDS = 5
RANGES = {
    "10m": ("10 minutes", 10 * MINUTE),
    "1h": ("1 hour", HOUR),
    "24h": ("24 hours", DAY),
    "7d": ("7 days", 7 * DAY),
}
DEFAULT = "24h"
_KEPT = "The record keeps the newest duplicates, for 7 days at most."


@dataclass(frozen=True, slots=True)
class Tally:
    """The tally of some duplicates.

    `ids` are pairs of an entity and a MessageId with the number of duplicates. `median` and `longest` are times from
    the original to its duplicate; None if no original is known.
    """

    count: int
    ids: list[tuple[tuple[int, str], int]]
    median: int | None
    longest: int | None


def tally(duplicates: Sequence[Duplicate], most_ids: int) -> Tally:
    """Return the tally of duplicates, with the ids that repeat most."""
    counts = Counter((each.entity, each.message_id) for each in duplicates)
    late = sorted(each for each in map(lateness, duplicates) if each is not None)
    return Tally(
        len(duplicates),
        counts.most_common(most_ids),
        late[len(late) // 2] if late else None,
        late[-1] if late else None,
    )


def lateness(duplicate: Duplicate) -> int | None:
    """Return how long after the original a duplicate was accepted; None if the original's time is unknown."""
    return None if duplicate.original_time is None else max(duplicate.time - duplicate.original_time, 0)


async def show(visit: Visit) -> Response:
    """Return the page of one entity: its newest duplicates, or those with one MessageId."""
    visit.require(Operation.READ_DROPS, visit.path)
    entity = visit.entity()
    if isinstance(entity, Subscription):
        raise BadRequest(f"Duplicates are dropped at the topic '{entity.topic}', before its subscriptions.")
    identity = visit.query.get("message-id", "")
    return await entity_page(
        visit,
        entity,
        "duplicates",
        f"Duplicates of {entity.name}",
        tag("h2", "Dropped duplicates", class_="unseen"),
        _search(entity, identity, is_followed=not identity and not visit.query.get("before")),
        await _of_id(visit, entity, identity) if identity else await _newest(visit, entity),
        await forgets_table(visit, entity),
    )


async def show_all(visit: Visit) -> Response:
    """Return the page of the whole namespace: the newest duplicates of all entities."""
    visit.require(Operation.ENUMERATE)
    name, since = _range(visit)
    found = await visit.desk.broker.looking.newest_duplicates_of_all(since=since, limit=TALLIED)
    page = found[:PAGE]
    summary = tally(found, MOST_IDS)
    count = f"more than {number(TALLIED)}" if len(found) == TALLIED else number(len(found))
    more = None
    if len(found) > PAGE:
        more = tag("p", f"These are the newest {PAGE}. The page of an entity has all of its record.", class_="note")
    return visit.page(
        "Duplicates",
        top("Duplicates", ("Overview", link())),
        tag("div", _ranges(name, ""), follow_box("duplicates"), class_="toolbar"),
        tag(
            "div",
            _summary(visit, name, count, summary, is_of_all=True),
            await _table(visit, page, None) if page else _none(None, name),
            more,
            data_region="duplicates",
        ),
        here=link("duplicates"),
    )


async def _newest(visit: Visit, entity: Queue | Topic) -> Markup:
    """Return the newest duplicates of an entity in the range, with their tally."""
    name, since = _range(visit)
    broker = visit.desk.broker
    before = visit.number("before") if visit.query.get("before") else None
    found = await broker.looking.newest_duplicates(entity.path, since=since, limit=TALLIED, before=before)
    page = found[:PAGE]
    links = []
    if before is not None:
        links.append(("Newest", link("entity/duplicates", path=entity.path, range=name)))
    if len(found) > PAGE:
        older = link("entity/duplicates", path=entity.path, range=name, before=page[-1].number)
        links.append(("Earlier", older))
    summary = None
    if before is None:
        count = number(await broker.looking.duplicates_since(entity.path, since))
        summary = _summary(visit, name, count, tally(found, MOST_IDS), is_of_all=False)
    content = await _table(visit, page, entity) if page else _none(entity, name)
    return join_markup(
        [_ranges(name, entity.path), tag("div", summary, content, _links(links), data_region="duplicates")]
    )


async def _of_id(visit: Visit, entity: Queue | Topic, identity: str) -> Markup:
    """Return the duplicates with one MessageId, oldest first."""
    after = visit.number("after")
    found = await visit.desk.broker.duplicates(entity.path, message_id=identity, limit=PAGE + 1, after=after)
    page = found[:PAGE]
    links = [("All duplicates", link("entity/duplicates", path=entity.path))]
    if after:
        links.append(("From the beginning", link("entity/duplicates", path=entity.path, message_id=identity)))
    if len(found) > PAGE:
        following = page[-1].number
        links.append(("Later", link("entity/duplicates", path=entity.path, message_id=identity, after=following)))
    content = await _table(visit, page, entity) if page else None
    return join_markup([_answer(entity, identity, page), forget_form(visit, entity, identity), content, _links(links)])


def _range(visit: Visit) -> tuple[str, int]:
    """Return the chosen range: its name, and when it begins. Raises `BadRequest`."""
    name = visit.one_of("range", RANGES, DEFAULT)
    return name, visit.now - RANGES[name][1]


def _ranges(here: str, path: str) -> Markup:
    page = "entity/duplicates" if path else "duplicates"
    return ranges(here, RANGES, lambda name: link(page, path=path or None, range=name), "Time")


def _search(entity: Queue | Topic, identity: str, *, is_followed: bool) -> Markup:
    form = Form({"message-id": identity})
    box = text_field(
        form, "message-id", "Was this MessageId dropped?", type_="search", placeholder="The exact MessageId"
    )
    brought = hidden("path", entity.path)
    search = search_form(link("entity/duplicates"), "In the record", brought, box)
    return tag("div", search, follow_box("duplicates") if is_followed else None, class_="toolbar")


def _summary(visit: Visit, name: str, count: str, summary: Tally, *, is_of_all: bool) -> Markup | None:
    if not summary.count:
        return None
    tiles: list[Content] = [tile(f"In the last {_last(name)}", count, "duplicates dropped")]
    if summary.median is not None and summary.longest is not None:
        tiles.append(tile("After the original", span(summary.median), "half of them came within"))
        tiles.append(tile("At the latest", span(summary.longest), "after the original"))
    note = f"Of the newest {number(TALLIED)}." if summary.count == TALLIED else None
    items = []
    for (entity, identity), times in summary.ids:
        path = _path(visit, entity)
        if path is not None:
            address = link("entity/duplicates", path=path, message_id=identity)
            where = [" in ", path] if is_of_all else None
            link_ = tag("a", foreign(identity, class_="foreign id"), href=address)
            items.append(tag("li", link_, where, tag("span", f"{number(times)} ×", class_="times")))
    top_ids = tag("div", tag("h2", "Repeat most"), tag("ol", items), class_="tile most")
    return join_markup([tag("div", tiles, top_ids, class_="tiles"), tag("p", note, class_="note") if note else None])


def _none(entity: Queue | Topic | None, name: str) -> Markup:
    if entity is not None and entity.window is None:
        return empty("Duplicates are not detected here, so nothing is dropped.")
    return empty(f"No duplicate was dropped in the last {_last(name)}. {_KEPT}")


def _last(name: str) -> str:
    """Return a range as it stands after "the last"."""
    return RANGES[name][0].removeprefix("1 ")


def _answer(entity: Queue | Topic, identity: str, drops: Sequence[Duplicate]) -> Markup:
    explanation: list[Content]
    if drops:
        explanation = ["Yes: ", foreign(identity), f" was dropped {count_in_words(len(drops), 'time')}."]
        if len(drops) == PAGE:
            explanation = ["Yes: ", foreign(identity), " was dropped."]
    elif entity.window is None:
        explanation = ["No: duplicates are not detected here, so nothing is dropped."]
    else:
        explanation = [
            "No drop of ",
            foreign(identity),
            f" is on record. {_KEPT} A message that was not dropped in that time was delivered, "
            "or was never sent here.",
        ]
    return tag("p", explanation, class_="notice dropped" if drops else "notice", role="status")


async def _table(visit: Visit, drops: Sequence[Duplicate], entity: Queue | Topic | None) -> Markup:
    """Return the table. `entity` is None on the page of the whole namespace, which names the entity in each row."""
    columns = [Column("MessageId")]
    if entity is None:
        columns.append(Column("Entity"))
    columns += [
        Column("Dropped"),
        Column("After the original", is_number=True, short="after"),
        Column("Original", is_wide=entity is None),
        Column("Its number", is_number=True, is_wide=True),
    ]
    kept = await _originals(visit, drops)
    now = visit.now
    rows = []
    for drop in drops:
        path = _path(visit, drop.entity)
        identity: Content = foreign(drop.message_id, class_="foreign id")
        if path is not None:
            identity = tag("a", identity, href=link("entity/duplicates", path=path, message_id=drop.message_id))
        late = lateness(drop)
        cells: list[Content] = [ago(drop.time, now), span(late) if late is not None else "unknown"]
        if entity is None:
            cells.insert(0, _entity(path))
        cells += [_original(visit, drop, kept.get((drop.entity, drop.original_sequence or 0))), str(drop.sequence)]
        rows.append(TableRow([identity, _counted_by(drop)], cells))
    return table("Dropped duplicates", columns, rows)


async def _originals(visit: Visit, drops: Sequence[Duplicate]) -> dict[tuple[int, int], Found]:
    """Return the originals that are still in their queue, by entity and sequence number."""
    wanted: dict[int, set[int]] = {}
    for drop in drops:
        if drop.original_sequence is not None and isinstance(visit.desk.catalogue.entity(drop.entity), Queue):
            wanted.setdefault(drop.entity, set()).add(drop.original_sequence)
    found = [
        each
        for entity, numbers in wanted.items()
        for each in await visit.desk.broker.looking.present(entity, [*numbers])
    ]
    return {(each.entity, each.sequence): each for each in found}


def _original(visit: Visit, drop: Duplicate, kept: Found | None) -> Content:
    if drop.original_sequence is None:
        return "unknown"
    name = f"number {drop.original_sequence}"
    owner = visit.desk.catalogue.entity(drop.entity)
    if not isinstance(owner, Queue):
        return name
    if kept is None:
        reason = "The queue no longer holds it: it was completed, expired, forwarded or deleted."
        return [name, " ", tag("span", "already consumed", class_="consumed", title=reason)]
    of = {SubQueue.MAIN: None, SubQueue.DEAD_LETTER: "dead-letters"}.get(
        SubQueue(kept.sub_queue), "transfer-dead-letters"
    )
    address = link("entity/messages", path=owner.path, of=of, **{"from": kept.sequence, "show": kept.sequence})
    note = " dead-lettered" if of is not None else None
    return [tag("a", name, href=address), tag("span", note, class_="consumed") if note else None]


def _counted_by(drop: Duplicate) -> Content:
    """Return which id counted, if that is not the MessageId."""
    if drop.counted_by is None:
        return None
    return [" ", tag("span", "by ", foreign(drop.counted_by), " ", foreign(drop.counted_id or ""), class_="none")]


def _path(visit: Visit, entity: int) -> str | None:
    found = visit.desk.catalogue.entity(entity)
    return None if found is None else found.path


def _entity(path: str | None) -> Content:
    return "deleted meanwhile" if path is None else tag("a", path, href=link("entity", path=path))


def _links(links: Sequence[tuple[str, str]]) -> Markup | None:
    return further([tag("a", title, href=address) for title, address in links])
