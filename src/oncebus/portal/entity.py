"""The page of one queue, topic or subscription, with its current figures."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.access import Operation
from oncebus.entities import Entity, Queue, Subscription, Topic
from oncebus.entities.timespans import in_words
from oncebus.portal.entity_head import heading, seen
from oncebus.portal.fields import button, form_to, hidden
from oncebus.portal.figures import Figures, series_of
from oncebus.portal.layout import page_links, page_of
from oncebus.portal.links import link
from oncebus.portal.markup import Markup, tag
from oncebus.portal.rule_words import rule_in_words
from oncebus.portal.visits import Visit
from oncebus.portal.wording import number, rate, size_in_words
from oncebus.store import Counts

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
_OF_TOPIC = ("scheduled",)
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
    "dead_lettered": "Dead-lettered",
    "expired": "Expired",
    "unrouted": "Matched by no subscription",
    "quarantined": "Quarantined",
    "discarded": "Discarded because their subscription was deleted",
}


async def show(visit: Visit) -> Response:
    """Return the page of the entity."""
    entity = seen(visit)
    if not visit.may(Operation.READ_ENTITY, entity.path):
        return _without_figures(visit, entity)
    # This waits for the pipeline, so that senders see the messages that they sent a moment ago.
    figures = await _figures(visit, entity, await visit.desk.broker.counts(entity.path))
    return visit.page(
        entity.name,
        heading(visit, entity, "entity"),
        _detection(visit, entity),
        _tiles(entity, figures),
        figures.plot(),
        tag("div", _held(entity, figures), _totals(entity, figures), class_="columns"),
        _subscriptions(visit, entity, figures) if isinstance(entity, Topic) else None,
        _rules(visit, entity) if isinstance(entity, Subscription) else None,
        live=link("entity/live", path=entity.path, page=visit.query.get("page")),
    )


async def live(visit: Visit) -> Response:
    """Return the figures of the page as JSON, for the script."""
    visit.require(Operation.READ_ENTITY, visit.path)
    entity = visit.entity()
    [counts] = await visit.desk.counts_of([entity])
    return visit.json((await _figures(visit, entity, counts)).as_json())


async def _figures(visit: Visit, entity: Entity, counts: Counts) -> Figures:
    samples = visit.desk.rates.samples(entity.id)
    names = ("copies",) if isinstance(entity, Subscription) else ("new", "dropped")
    figures = Figures(series=series_of(samples, *names))
    for name, per_second in zip(("new", "dropped", "copies"), samples.per_second(), strict=True):
        figures.values[f"{name}-rate"] = rate(per_second)
    for name in (*_HELD, *_TITLES):
        figures.values[name] = number(getattr(counts, name))
    figures.values["size"] = size_in_words(visit.desk.broker.held(entity))
    if isinstance(entity, Topic):
        below = _below(visit, entity)
        for each, held in zip(below, await visit.desk.counts_of(below), strict=True):
            figures.values |= {f"{each.id}-active": number(held.active), f"{each.id}-dead": number(held.dead_letter)}
            figures.values[f"{each.id}-incoming"] = number(held.incoming)
    return figures


def _detection(visit: Visit, entity: Entity) -> Markup:
    window = visit.desk.catalogue.window_of(entity)
    whose = "Its topic detects duplicates" if isinstance(entity, Subscription) else "Duplicates are detected"
    if window is None:
        return tag("p", "Duplicates are not detected.", class_="lead")
    return tag("p", f"{whose}: a MessageId is remembered for {in_words(window)}.", class_="lead")


def _tiles(entity: Entity, figures: Figures) -> Markup:
    tiles = []
    if not isinstance(entity, Subscription):
        tiles += [figures.tile("New / s", "new-rate"), figures.tile("Duplicates / s", "dropped-rate")]
    else:
        tiles.append(figures.tile("New / s", "copies-rate"))
    if not isinstance(entity, Topic):
        tiles += [figures.tile("Active", "active"), figures.tile("Dead letters", "dead_letter")]
    tiles.append(figures.tile("Size", "size"))
    return tag("div", tiles, class_="tiles")


def _held(entity: Entity, figures: Figures) -> Markup:
    names = _OF_TOPIC if isinstance(entity, Topic) else tuple(_HELD)
    rows = [tag("div", tag("dt", _HELD[name]), tag("dd", figures.shown(name))) for name in names]
    return tag("section", tag("h2", "Held now"), tag("dl", rows, class_="facts"))


def _totals(entity: Entity, figures: Figures) -> Markup:
    rows = [tag("div", tag("dt", _TITLES[name]), tag("dd", figures.shown(name))) for name in _TOTALS[type(entity)]]
    return tag("section", tag("h2", "Counted since its creation"), tag("dl", rows, class_="facts"))


def _below(visit: Visit, topic: Topic) -> Sequence[Subscription]:
    return page_of(visit.desk.catalogue.subscriptions_of(topic), visit.number("page"), PAGE)


def _subscriptions(visit: Visit, topic: Topic, figures: Figures) -> Markup:
    # Only subscriptions that existed when the figures were read.
    below = [each for each in _below(visit, topic) if f"{each.id}-active" in figures.values]
    create = None
    if visit.may(Operation.CREATE_ENTITY, topic.path):
        address = link("create", kind="subscription", topic=topic.name)
        create = tag("p", tag("a", "Create a subscription", href=address, class_="button"))
    content = _subscription_table(below, figures) if below else tag("p", "None yet. Messages sent here go nowhere.")
    total = len(visit.desk.catalogue.subscriptions_of(topic))
    return tag("section", tag("h2", "Subscriptions"), content, _pages(visit, topic, total), create)


def _pages(visit: Visit, entity: Entity, total: int) -> Markup | None:
    return page_links(total, visit.number("page"), PAGE, lambda page: link("entity", path=entity.path, page=page))


def _subscription_table(below: Sequence[Subscription], figures: Figures) -> Markup:
    titles = ("Name", "Rules", "Active", "Dead letters", "Incoming")
    head = tag(
        "thead",
        tag(
            "tr", [tag("th", title, scope="col", class_="number" if title in titles[2:] else None) for title in titles]
        ),
    )
    rows = []
    for each in below:
        name = tag("th", tag("a", each.name, href=link("entity", path=each.path)), scope="row")
        named = ", ".join(rule.name for rule in each.rules[:MOST_NAMED]) or "none"
        more = f" and {number(len(each.rules) - MOST_NAMED)} more" if len(each.rules) > MOST_NAMED else ""
        rules = tag("td", f"{named}{more}", data_title="Rules")
        cells = [
            tag("td", figures.shown(f"{each.id}-{figure}"), data_title=title, class_="number")
            for title, figure in zip(titles[2:], ("active", "dead", "incoming"), strict=True)
        ]
        rows.append(tag("tr", name, rules, cells))
    return tag("table", tag("caption", "Subscriptions", class_="unseen"), head, tag("tbody", rows), class_="stacked")


def _rules(visit: Visit, subscription: Subscription) -> Markup:
    may_remove = visit.may(Operation.DELETE_ENTITY, subscription.path)
    items = []
    for rule in page_of(subscription.rules, visit.number("page"), PAGE):
        remove = None
        if may_remove:
            label = f"Remove the rule {rule.name}"
            fields = [hidden("path", subscription.path), hidden("rule", rule.name)]
            remove = form_to(
                link("entity/rule/remove"), visit.seal, fields, button("Remove", class_="quiet", aria_label=label)
            )
        items.append(tag("li", tag("h3", rule.name), rule_in_words(rule), remove, class_="card"))
    add = None
    if visit.may(Operation.CREATE_ENTITY, subscription.path):
        add = tag("p", tag("a", "Add a rule", href=link("entity/rule", path=subscription.path), class_="button"))
    explanation = "The subscription gets a message if one of the rules matches it."
    listed = tag("ul", items, class_="cards") if items else tag("p", "None: this subscription gets no messages.")
    further = _pages(visit, subscription, len(subscription.rules))
    return tag("section", tag("h2", "Rules"), tag("p", explanation, class_="hint"), listed, further, add)


def _without_figures(visit: Visit, entity: Entity) -> Response:
    explanation = "Your key does not permit viewing the properties and counts of this entity. You need Manage."
    rules = None
    if isinstance(entity, Subscription) and visit.may(Operation.READ_RULES, entity.path):
        rules = _rules(visit, entity)
    return visit.page(entity.name, heading(visit, entity, "entity"), tag("p", explanation, class_="lead"), rules)
