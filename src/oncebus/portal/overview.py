"""The page of the namespace: rates, health, and the list of entities."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.access import Operation
from oncebus.durations import SECOND
from oncebus.entities import Entity, Queue, Subscription, Topic
from oncebus.entities.timespans import in_words
from oncebus.portal.fields import Filled, button, text_field
from oncebus.portal.figures import Figures, series_of
from oncebus.portal.layout import page_links, page_of
from oncebus.portal.links import link
from oncebus.portal.markup import Content, Markup, tag
from oncebus.portal.visits import Visit
from oncebus.portal.wording import counted, number, rate, size_in_words

PAGE = 50
_MOST_COUNTED = 1000
"""With more entities, subscriptions included, the page does not count the messages of topics: it takes too long."""


async def show(visit: Visit) -> Response:
    """Return the page. Without the right to list entities, it offers to open one by its name."""
    if not visit.may(Operation.ENUMERATE):
        return _without_list(visit)
    everything, page = _listed(visit)
    figures = await _figures(visit, page)
    find, here = visit.query.get("find") or None, visit.number("page")
    return visit.page(
        "Overview",
        tag("h1", "Overview"),
        _tiles(figures),
        figures.plot(),
        tag("h2", "Queues and topics"),
        _search(visit),
        _table(visit, page, figures) if page else _nothing(visit),
        page_links(len(everything), here, PAGE, lambda page: link(find=find, page=page)),
        live=link("live", find=find, page=here or None),
        here=link(),
    )


async def live(visit: Visit) -> Response:
    """Return the figures of the page as JSON, for the script."""
    visit.require(Operation.ENUMERATE)
    _, page = _listed(visit)
    return visit.json((await _figures(visit, page)).as_json())


def _listed(visit: Visit) -> tuple[list[Queue | Topic], list[Queue | Topic]]:
    """Return all entities that match the search, and those of the requested page."""
    catalogue = visit.desk.catalogue
    wanted = visit.query.get("find", "").strip().lower()
    everything: list[Queue | Topic] = [*catalogue.queues, *catalogue.topics]
    found = [each for each in everything if wanted in each.name.lower()]
    found.sort(key=lambda each: each.name.lower())
    return found, list(page_of(found, visit.number("page"), PAGE))


async def _figures(visit: Visit, entities: Sequence[Queue | Topic]) -> Figures:
    desk = visit.desk
    holders = {each.id: _holders(visit, each) for each in entities}
    looked: list[Entity] = [*entities, *(one for some in holders.values() for one in some)]
    if len(looked) > _MOST_COUNTED:
        looked, holders = list(entities), {}
    counts = dict(zip((each.id for each in looked), await desk.counts_of(looked), strict=True))
    samples = desk.rates.samples()
    figures = Figures(series=series_of(samples, "new", "dropped"))
    for name, per_second in zip(("new", "dropped", "copies"), samples.per_second(), strict=True):
        figures.values[f"{name}-rate"] = rate(per_second)
    summary = await desk.remembered.summary()
    figures.values["ids"] = number(summary.ids) if summary is not None else "unknown"
    figures.values["ids-size"] = size_in_words(summary.bytes) if summary is not None else "The ledger cannot be read"
    problem = desk.health.problem()
    figures.values["health"] = "Healthy" if problem is None else "Unhealthy"
    figures.values["health-note"] = _waiting(visit) if problem is None else problem
    figures.states["health"] = "good" if problem is None else "bad"
    for each in entities:
        own, held = counts[each.id], [counts[one.id] for one in holders.get(each.id, ())]
        figures.values[f"{each.id}-active"] = number(sum(one.active for one in held)) if holders else "–"
        figures.values[f"{each.id}-dead"] = number(sum(one.dead_letter for one in held)) if holders else "–"
        figures.values[f"{each.id}-new"] = number(own.new)
        figures.values[f"{each.id}-dropped"] = number(own.duplicates)
    return figures


def _holders(visit: Visit, entity: Queue | Topic) -> Sequence[Queue | Subscription]:
    """Return the entities that hold the messages sent to an entity: the queue itself, or the topic's subscriptions."""
    return [entity] if isinstance(entity, Queue) else visit.desk.catalogue.subscriptions_of(entity)


def _waiting(visit: Visit) -> str:
    pipeline = visit.desk.broker.pipeline
    if pipeline.lag == 0:
        return "Nothing waits for the pipeline"
    return f"{counted(pipeline.lag, 'commit')} in the pipeline, oldest {pipeline.oldest_wait / SECOND:.1f} s"


def _tiles(figures: Figures) -> Markup:
    return tag(
        "div",
        figures.tile("New / s", "new-rate"),
        figures.tile("Duplicates / s", "dropped-rate"),
        figures.tile("Remembered ids", "ids", figures.shown("ids-size")),
        figures.tile("State", "health", figures.shown("health-note")),
        class_="tiles",
    )


def _search(visit: Visit) -> Markup:
    form = Filled({"find": visit.query.get("find", "")})
    box = text_field(form, "find", "Name contains", type_="search")
    return tag("form", box, button("Find"), method="get", action=link(), class_="inline", role="search")


def _table(visit: Visit, entities: Sequence[Queue | Topic], figures: Figures) -> Markup:
    titles = ("Name", "Kind", "Duplicate detection", "Active", "Dead letters", "New", "Duplicates")
    head = tag("thead", tag("tr", [tag("th", title, scope="col", class_=_align(title)) for title in titles]))
    rows = [_entity_row(visit, each, titles, figures) for each in entities]
    return tag(
        "table", tag("caption", "Queues and topics", class_="unseen"), head, tag("tbody", rows), class_="stacked"
    )


def _entity_row(visit: Visit, entity: Queue | Topic, titles: Sequence[str], figures: Figures) -> Markup:
    kind = "Queue"
    if isinstance(entity, Topic):
        kind = f"Topic, {counted(len(visit.desk.catalogue.subscriptions_of(entity.name)), 'subscription')}"
    cells: list[Content] = [kind, in_words(entity.window) if entity.window is not None else "off"]
    cells += [figures.shown(f"{entity.id}-{name}") for name in ("active", "dead", "new", "dropped")]
    name = tag("th", tag("a", entity.name, href=link("entity", path=entity.path)), scope="row")
    described = zip(titles[1:], cells, strict=True)
    return tag("tr", name, [tag("td", cell, data_title=title, class_=_align(title)) for title, cell in described])


def _align(title: str) -> str | None:
    return "number" if title in ("Active", "Dead letters", "New", "Duplicates") else None


def _nothing(visit: Visit) -> Markup:
    if visit.query.get("find"):
        return tag("p", "No queue or topic has this text in its name.")
    return tag(
        "p", "There is no queue or topic yet. ", tag("a", "Create a queue", href=link("create", kind="queue")), "."
    )


def _without_list(visit: Visit) -> Response:
    own = "/".join(visit.grant.scope.path)
    known = visit.desk.catalogue.find(own) if own else None
    direct = None
    if known is not None and not isinstance(known, Subscription):
        direct = tag("p", "It is for ", tag("a", known.path, href=link("entity", path=known.path)), ".")
    form = Filled({})
    box = text_field(form, "path", "Path", hint="A queue, a topic, or topic/Subscriptions/name", required=True)
    return visit.page(
        "Overview",
        tag("h1", "Overview"),
        tag("p", "Your key does not permit listing queues and topics. You need Manage.", class_="lead"),
        direct,
        tag("h2", "Open a queue, topic or subscription"),
        tag("form", box, button("Open"), method="get", action=link("entity"), class_="inline"),
        here=link(),
    )
