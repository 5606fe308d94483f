"""The table of entities on the overview: sorted, filtered, a page at a time, with the figures of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncebus.broker.broker import Broker
from oncebus.engine.store import Counts
from oncebus.model.entities import Entity, Queue, Subscription, Topic
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.portal.figures import Figures, spark_points
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Markup, tag
from oncebus.protocols.portal.tables import Column, Sorting, TableRow, table
from oncebus.protocols.portal.visits import Desk, Visit
from oncebus.protocols.portal.wording import count_in_words, number, rate, share, span

PAGE = 50
_SINCE = "Of the incoming messages since the entity was created"
COLUMNS = (
    Column("Name", sort="name"),
    Column("Kind", sort="kind", is_wide=True),
    Column("Detection", is_wide=True),
    Column("Incoming / s", is_number=True, sort="rate", short="in/s"),
    Column("Last 10 min", is_wide=True),
    Column("Duplicates", is_number=True, sort="duplicates", short="dup.", note=_SINCE),
    Column("Backlog", is_number=True, sort="backlog", short="backlog"),
    Column("Oldest", is_number=True, is_wide=True),
    Column("Dead letters", is_number=True, sort="dead", short="dead"),
    Column("Consumers", is_number=True, short="cons."),
)
FIGURES = ("rate", "duplicates", "backlog", "oldest", "dead", "consumers")
POLLING, FORWARDS = "polling", "forwards"
_NONE = "–"

_BY_COUNTS: dict[str, Callable[[Counts], int]] = {
    "duplicates": lambda counts: counts.duplicates,
    "backlog": lambda counts: counts.active,
    "dead": lambda counts: counts.dead_letter,
}


@dataclass(frozen=True, slots=True)
class EntityListing:
    """The entities of one page, in order, with how many there are on all pages."""

    total: int
    page: list[Entity]
    sort: str
    is_descending: bool


async def list_entities(visit: Visit) -> EntityListing:
    """Return the entities of the requested page. Raises `BadRequest`."""
    wanted = visit.query.get("find", "").strip().lower()
    sort = visit.one_of("sort", [column.sort for column in COLUMNS if column.sort], "name")
    is_descending = visit.query.get("order") == "descending"
    found = [each for each in visit.desk.catalogue.entities.values() if wanted in each.path.lower()]
    # By name first: a sort keeps the order of equal entities.
    found.sort(key=lambda each: each.path.lower(), reverse=is_descending and sort == "name")
    if sort in _BY_COUNTS:
        counts = dict(zip((each.id for each in found), await visit.desk.counts_of(found), strict=True))
        found.sort(key=lambda each: _BY_COUNTS[sort](counts[each.id]), reverse=is_descending)
    elif sort == "rate":
        found.sort(key=lambda each: visit.desk.rates.per_second(each.id), reverse=is_descending)
    elif sort == "kind":
        found.sort(key=lambda each: type(each).__name__, reverse=is_descending)
    start = visit.number("page") * PAGE
    return EntityListing(len(found), found[start : start + PAGE], sort, is_descending)


async def add_figures(desk: Desk, entities: Sequence[Entity], figures: Figures) -> None:
    """Add the figures of entities, under names that begin with the entity's id."""
    counts = await desk.counts_of(entities)
    oldest = await desk.broker.oldest_waiting([each.id for each in entities])
    now = desk.broker.clock.steady()
    for entity, held, since in zip(entities, counts, oldest, strict=True):
        values = {"rate": rate(desk.rates.per_second(entity.id)), "duplicates": _NONE}
        if not isinstance(entity, Subscription) and entity.window is not None:
            values["duplicates"] = share(held.duplicates, held.incoming) if held.incoming else "0%"
        states = {"duplicates": "some"} if held.duplicates else {}
        values |= {"backlog": _NONE, "oldest": _NONE, "dead": _NONE, "consumers": _NONE}
        if isinstance(entity, Queue | Subscription):
            values |= {"backlog": number(held.active), "dead": number(held.dead_letter)}
            values["oldest"] = _NONE if since is None else span(max(now - since, 0))
            text, states["consumers"] = consumer_state(desk.broker, entity, held.active)
            # The page of the entity says since when there is none.
            values["consumers"] = text.partition(" ")[0]
            if held.dead_letter:
                states["dead"] = "bad"
        figures.values |= {f"{entity.id}-{name}": value for name, value in values.items()}
        figures.states |= {f"{entity.id}-{name}": state for name, state in states.items() if state}
        figures.sparks[str(entity.id)] = spark_points(desk.rates.spark(entity.id))


def consumer_state(broker: Broker, entity: Queue | Subscription, backlog: int) -> tuple[str, str]:
    """Return a word about the consumers of an entity, and its state: good, bad or empty.

    It is bad if messages wait and nobody receives them.
    """
    attached, asked = broker.consumers.attached(entity.id), broker.received_at(entity)
    if attached:
        return number(attached), "good"
    if broker.consumers.is_polled(entity.id):
        return POLLING, "good"
    if entity.forward_to is not None:
        return FORWARDS, ""
    text = "none" if asked is None else f"none for {span(max(broker.clock.now() - asked, 0))}"
    return text, "bad" if backlog else ""


def entity_table(visit: Visit, found: EntityListing, figures: Figures) -> Markup:
    """Return the table of the entities on a page."""

    def address(by: str, is_descending: bool) -> str:
        return page_address(visit, sort=by, order="descending" if is_descending else None, page=None)

    rows = [_row(visit.desk, each, figures) for each in found.page]
    return table("Entities", COLUMNS, rows, sorting=Sorting(found.sort, found.is_descending, address))


def page_address(visit: Visit, page_name: str = "", /, **changed: str | int | None) -> str:
    """Return the address of the overview with some parameters changed and the others kept."""
    kept = {name: visit.query.get(name) or None for name in ("find", "sort", "order", "range", "page")}
    return link(page_name, **{**kept, **changed})


def _row(desk: Desk, entity: Entity, figures: Figures) -> TableRow:
    title = f"{entity.topic} / {entity.name}" if isinstance(entity, Subscription) else entity.name
    name = tag("a", title, href=link("entity", path=entity.path))
    window = None if isinstance(entity, Subscription) else entity.window
    detection = in_words(window) if window is not None else "off"
    if isinstance(entity, Subscription):
        detection = _NONE
    kind = type(entity).__name__
    if isinstance(entity, Topic):
        kind = f"Topic, {count_in_words(len(desk.catalogue.subscriptions_of(entity)), 'subscription')}"
    shown_figures = [figures.show(f"{entity.id}-{each}") for each in FIGURES]
    return TableRow(name, [kind, detection, shown_figures[0], figures.spark(str(entity.id)), *shown_figures[1:]])
