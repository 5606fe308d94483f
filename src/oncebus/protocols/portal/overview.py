"""The page of the namespace: rates, health, and the list of entities."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.engine.store import NAMESPACE
from oncebus.model.access import Operation
from oncebus.model.entities import Subscription
from oncebus.protocols.portal.entity_table import (
    PAGE,
    EntityListing,
    add_figures,
    entity_table,
    list_entities,
    page_address,
)
from oncebus.protocols.portal.figures import DEFAULT, SPANS, Figures
from oncebus.protocols.portal.forms import Form, button, hidden, text_field
from oncebus.protocols.portal.layout import empty, find_box, page_links, section_head, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import number, size_in_words
from oncebus.protocols.portal.wording import span as words_of


async def show(visit: Visit) -> Response:
    """Return the page. Without the right to list entities, it offers to open one by its name."""
    if not visit.may(Operation.ENUMERATE):
        return _without_list(visit)
    found = await list_entities(visit)
    figures = await _figures(visit, found)
    return visit.page(
        "Overview",
        top("Overview", actions=_creation(visit)),
        _tiles(figures),
        figures.plot(lambda name: page_address(visit, range=name)),
        section_head("Entities", _search(visit) if found.total or visit.query.get("find") else None),
        entity_table(visit, found, figures) if found.page else _nothing(visit),
        page_links(found.total, visit.number("page"), PAGE, lambda page: page_address(visit, page=page)),
        live=page_address(visit, "live"),
        here=link(),
    )


async def live(visit: Visit) -> Response:
    """Return the figures of the page as JSON, for the script."""
    visit.require(Operation.ENUMERATE)
    return visit.json((await _figures(visit, await list_entities(visit))).as_json())


async def _figures(visit: Visit, found: EntityListing) -> Figures:
    desk, figures = visit.desk, Figures(visit.one_of("range", SPANS, DEFAULT))
    await figures.add_history(desk.broker, None, "new", "duplicates", "outgoing")
    [whole] = await desk.broker.counts_now([NAMESPACE])
    figures.values["backlog"] = number(whole.active)
    figures.values["dead"] = number(whole.dead_letter)
    if whole.dead_letter:
        figures.states["dead"] = "bad"
    summary = await desk.remembered.summary()
    figures.values["ids"] = number(summary.ids) if summary is not None else "unknown"
    figures.values["ids-size"] = size_in_words(summary.bytes) if summary is not None else "The ledger cannot be read"
    problem = desk.health.problem()
    figures.values["health"] = "Healthy" if problem is None else "Unhealthy"
    figures.values["health-note"] = _waiting(visit) if problem is None else problem
    figures.states["health"] = "good" if problem is None else "bad"
    await add_figures(desk, found.page, figures)
    return figures


def _waiting(visit: Visit) -> str:
    pipeline = visit.desk.broker.pipeline
    if pipeline.lag == 0:
        return "Nothing waits for the pipeline"
    return f"Messages on their way, the oldest for {words_of(pipeline.oldest_wait)}"


def _tiles(figures: Figures) -> Markup:
    return tag(
        "div",
        figures.tile("Incoming / s", "incoming-rate", figures.show("incoming-sum")),
        figures.tile("Duplicates", "dropped-sum", figures.show("dropped-share")),
        figures.tile("Outgoing / s", "outgoing-rate", figures.show("outgoing-sum")),
        figures.tile("Backlog", "backlog", "messages to receive"),
        figures.tile("Dead letters", "dead", "in all entities"),
        figures.tile("Remembered ids", "ids", figures.show("ids-size")),
        figures.tile("State", "health", figures.show("health-note")),
        class_="tiles",
    )


def _search(visit: Visit) -> Markup:
    kept = [hidden(name, visit.query[name]) for name in ("sort", "order", "range") if visit.query.get(name)]
    wanted = visit.query.get("find", "")
    return find_box(link(), "find", "Name contains", "Filter", kept, label="Entities", value=wanted)


def _creation(visit: Visit) -> Content:
    if not visit.may(Operation.CREATE_ENTITY):
        return None
    return [
        tag("a", "Create queue", href=link("create", kind="queue"), class_="button"),
        tag("a", "Create topic", href=link("create", kind="topic"), class_="button"),
    ]


def _nothing(visit: Visit) -> Markup:
    if visit.query.get("find"):
        return empty("No entity has this text in its name.")
    if visit.number("page"):
        return empty("This page is empty.")
    return empty("There is no queue or topic yet. Create a queue, and send a message twice to see it dropped once.")


def _without_list(visit: Visit) -> Response:
    own = "/".join(visit.grant.scope.path)
    known = visit.desk.catalogue.find(own) if own else None
    direct = None
    if known is not None and not isinstance(known, Subscription):
        direct = tag("p", "It is for ", tag("a", known.path, href=link("entity", path=known.path)), ".")
    box = text_field(Form(), "path", "Path", hint="A queue, a topic, or topic/Subscriptions/name", required=True)
    return visit.page(
        "Overview",
        top("Overview"),
        tag("p", "Your key does not permit listing queues and topics. You need Manage.", class_="lead"),
        direct,
        section_head("Open a queue, topic or subscription"),
        tag("form", box, button("Open"), method="get", action=link("entity"), class_="inline"),
        here=link(),
    )
