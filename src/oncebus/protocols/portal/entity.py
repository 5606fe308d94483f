"""The page of one queue, topic or subscription, with its current figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from starlette.responses import Response

from oncebus.engine.store import Counts
from oncebus.model.access import Operation
from oncebus.model.entities import Entity, Queue, Subscription, Topic
from oncebus.model.entities.detection_keys import property_of
from oncebus.model.entities.timespans import in_words
from oncebus.protocols.portal.entity_head import entity_page, find_visible
from oncebus.protocols.portal.entity_table import COLUMNS, FORWARDS, POLLING, add_figures, consumer_state
from oncebus.protocols.portal.figures import DEFAULT, SPANS, Figures
from oncebus.protocols.portal.forms import button, hidden
from oncebus.protocols.portal.layout import empty, facts, page_links, page_of, section_head
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Markup, tag
from oncebus.protocols.portal.rules import rule_in_words
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import number, size_in_words
from oncebus.protocols.portal.wording import span as words_of

PAGE = 100
"""The maximum number of subscriptions of a topic, or rules of a subscription, on one page."""
MOST_NAMED = 5

_HELD = {
    "active": "Active",
    "scheduled": "Scheduled",
    "deferred": "Deferred",
    "dead_letter": "Dead letters",
    "transfer": "Being forwarded",
    "transfer_dead_letter": "Could not be forwarded",
}
_TOTALS: dict[type[Entity], tuple[str, ...]] = {
    Queue: (
        *("incoming", "new", "duplicates", "outgoing", "completed", "abandoned"),
        *("dead_lettered", "expired", "quarantined"),
    ),
    Topic: ("incoming", "new", "duplicates", "unrouted", "expired", "quarantined", "discarded"),
    Subscription: ("incoming", "outgoing", "completed", "abandoned", "dead_lettered", "expired"),
}
_TITLES = {
    "incoming": "Incoming",
    "new": "New",
    "duplicates": "Duplicates, dropped",
    "outgoing": "Outgoing: deliveries to receivers",
    "completed": "Completed",
    "abandoned": "Abandoned, or lock expired",
    "expired": "Expired",
    "dead_lettered": "Dead-lettered",
    "unrouted": "Matched by no subscription",
    "quarantined": "Quarantined",
    "discarded": "Discarded because their subscription was deleted",
}


_SUBSCRIPTION_COLUMNS = (
    Column("Name"),
    Column("Rules"),
    *(each for each in COLUMNS if each.title not in ("Name", "Kind", "Detection", "Duplicates")),
)
_SERIES: dict[type[Entity], tuple[str, ...]] = {
    Queue: ("new", "duplicates", "outgoing"),
    Topic: ("new", "duplicates"),
    Subscription: ("new", "outgoing"),
}


async def show(visit: Visit) -> Response:
    """Return the page of the entity."""
    entity = find_visible(visit)
    if not visit.may(Operation.READ_ENTITY, entity.path):
        return await _without_figures(visit, entity)
    # This waits for the pipeline, so that senders see the messages that they sent a moment ago.
    figures = await _figures(visit, entity, await visit.desk.broker.counts(entity.path))
    held = _facts("Held now", _HELD, ("scheduled",) if isinstance(entity, Topic) else _HELD, figures)
    page, span = visit.query.get("page"), visit.query.get("range")
    return await entity_page(
        visit,
        entity,
        "entity",
        entity.name,
        _detection(visit, entity),
        _tiles(entity, figures),
        figures.plot(lambda name: link("entity", path=entity.path, page=page, range=name)),
        tag(
            "div", held, _facts("Counted since its creation", _TITLES, _TOTALS[type(entity)], figures), class_="columns"
        ),
        _subscriptions(visit, entity, figures) if isinstance(entity, Topic) else None,
        _rules(visit, entity) if isinstance(entity, Subscription) else None,
        live=link("entity/live", path=entity.path, page=page, range=span),
    )


async def live(visit: Visit) -> Response:
    """Return the figures of the page as JSON, for the script."""
    visit.require(Operation.READ_ENTITY, visit.path)
    entity = visit.entity()
    [counts] = await visit.desk.counts_of([entity])
    return visit.json((await _figures(visit, entity, counts)).as_json())


async def _figures(visit: Visit, entity: Entity, counts: Counts) -> Figures:
    desk, figures = visit.desk, Figures(visit.one_of("range", SPANS, DEFAULT))
    await figures.add_history(desk.broker, entity, *_SERIES[type(entity)])
    for each in (*_HELD, *_TITLES):
        figures.values[each] = number(getattr(counts, each))
    figures.values["size"] = size_in_words(desk.broker.held(entity))
    if isinstance(entity, Topic):
        await add_figures(desk, _below(visit, entity), figures)
    else:
        await _add_consumers(visit, entity, counts, figures)
    if counts.dead_letter:
        figures.states["dead_letter"] = "bad"
    return figures


async def _add_consumers(visit: Visit, entity: Queue | Subscription, counts: Counts, figures: Figures) -> None:
    broker = visit.desk.broker
    [oldest] = await broker.oldest_waiting([entity.id])
    waited = "nothing waits" if oldest is None else f"oldest {words_of(max(broker.clock.steady() - oldest, 0))}"
    figures.values["oldest"] = waited
    text, state = consumer_state(broker, entity, counts.active)
    figures.values["consumers"] = text
    notes = {POLLING: "asked in the last minute", FORWARDS: "nobody receives here"}
    note = "messages wait, nobody receives" if state == "bad" else notes.get(text, "attached now")
    figures.values["consumers-note"] = note
    if state:
        figures.states["consumers"] = state


def _detection(visit: Visit, entity: Entity) -> Markup:
    window = visit.desk.catalogue.window_of(entity)
    whose = "Its topic detects duplicates" if isinstance(entity, Subscription) else "Duplicates are detected"
    if window is None:
        return tag("p", "Duplicates are not detected.", class_="lead")
    holder = visit.desk.catalogue.topic_of(entity) if isinstance(entity, Subscription) else entity
    return tag(
        "p", f"{whose}: {_detected_by(holder.detection_key)} is remembered for {in_words(window)}.", class_="lead"
    )


def _detected_by(detection_key: str | None) -> str:
    if detection_key is None:
        return "a MessageId"
    name = property_of(detection_key)
    return "a body" if name is None else f"the property {name}"


def _tiles(entity: Entity, figures: Figures) -> Markup:
    tiles = [figures.tile("Incoming / s", "incoming-rate", figures.show("incoming-sum"))]
    if not isinstance(entity, Subscription):
        tiles.append(figures.tile("Duplicates", "dropped-sum", figures.show("dropped-share")))
    if not isinstance(entity, Topic):
        tiles += [
            figures.tile("Outgoing / s", "outgoing-rate", figures.show("outgoing-sum")),
            figures.tile("Backlog", "active", figures.show("oldest")),
            figures.tile("Dead letters", "dead_letter", "in this entity"),
            figures.tile("Consumers", "consumers", figures.show("consumers-note")),
        ]
    tiles.append(figures.tile("Size", "size", "counts towards its quota"))
    return tag("div", tiles, class_="tiles")


def _facts(title: str, titles: Mapping[str, str], names: Iterable[str], figures: Figures) -> Markup:
    return tag("section", tag("h2", title), facts((titles[name], figures.show(name)) for name in names))


def _below(visit: Visit, topic: Topic) -> Sequence[Subscription]:
    return page_of(visit.desk.catalogue.subscriptions_of(topic), visit.number("page"), PAGE)


def _subscriptions(visit: Visit, topic: Topic, figures: Figures) -> Markup:
    # Only subscriptions that existed when the figures were read.
    below = [each for each in _below(visit, topic) if f"{each.id}-backlog" in figures.values]
    create = None
    if visit.may(Operation.CREATE_ENTITY, topic.path):
        address = link("create", kind="subscription", topic=topic.name)
        create = tag("a", "Create subscription", href=address, class_="button")
    content = _subscription_table(below, figures) if below else empty("None yet. Messages sent here go nowhere.")
    total = len(visit.desk.catalogue.subscriptions_of(topic))
    return tag("section", section_head("Subscriptions", create), content, _pages(visit, topic, total))


def _pages(visit: Visit, entity: Entity, total: int) -> Markup | None:
    return page_links(total, visit.number("page"), PAGE, lambda page: link("entity", path=entity.path, page=page))


def _subscription_table(below: Sequence[Subscription], figures: Figures) -> Markup:
    rows = []
    for each in below:
        named = ", ".join(rule.name for rule in each.rules[:MOST_NAMED]) or "none"
        more = f" and {number(len(each.rules) - MOST_NAMED)} more" if len(each.rules) > MOST_NAMED else ""
        rate, *others = (
            figures.show(f"{each.id}-{name}") for name in ("rate", "backlog", "oldest", "dead", "consumers")
        )
        name = tag("a", each.name, href=link("entity", path=each.path))
        rows.append(TableRow(name, [f"{named}{more}", rate, figures.spark(str(each.id)), *others]))
    return table("Subscriptions", _SUBSCRIPTION_COLUMNS, rows)


def _rules(visit: Visit, subscription: Subscription) -> Markup:
    may_remove = visit.may(Operation.DELETE_ENTITY, subscription.path)
    items = []
    for rule in page_of(subscription.rules, visit.number("page"), PAGE):
        remove = None
        if may_remove:
            ask = button("Remove", class_="quiet", aria_label=f"Remove the rule {rule.name}")
            remove = visit.form_to("entity/rule/remove", hidden("rule", rule.name), ask)
        items.append(tag("li", tag("h3", rule.name), rule_in_words(rule), remove, class_="card"))
    add = None
    if visit.may(Operation.CREATE_ENTITY, subscription.path):
        add = tag("a", "Add rule", href=link("entity/rule", path=subscription.path), class_="button")
    explanation = "The subscription gets a message if one of the rules matches it."
    listed = tag("ul", items, class_="cards") if items else empty("None: this subscription gets no messages.")
    further = _pages(visit, subscription, len(subscription.rules))
    return tag("section", section_head("Rules", add), tag("p", explanation, class_="hint"), listed, further)


async def _without_figures(visit: Visit, entity: Entity) -> Response:
    explanation = "Your key does not permit viewing the properties and counts of this entity. You need Manage."
    rules = None
    if isinstance(entity, Subscription) and visit.may(Operation.READ_RULES, entity.path):
        rules = _rules(visit, entity)
    return await entity_page(visit, entity, "entity", entity.name, tag("p", explanation, class_="lead"), rules)
