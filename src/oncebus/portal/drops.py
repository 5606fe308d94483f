"""The page of dropped duplicates. It shows whether a message was dropped, and which earlier message it repeated."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.access import Operation
from oncebus.entities import Queue, Subscription, Topic
from oncebus.http.errors import bad
from oncebus.portal.entity_head import heading
from oncebus.portal.fields import Filled, button, hidden, text_field
from oncebus.portal.forgets import forget_form, forgotten
from oncebus.portal.links import link
from oncebus.portal.markup import Content, Markup, foreign, tag
from oncebus.portal.visits import Visit
from oncebus.portal.wording import moment
from oncebus.store import Duplicate

PAGE = 50


async def show(visit: Visit) -> Response:
    """Return the page: the newest drops, or the drops of one message id, oldest first."""
    visit.require(Operation.READ_DROPS, visit.path)
    entity = visit.entity()
    if isinstance(entity, Subscription):
        raise bad(f"Duplicates are dropped at the topic '{entity.topic}', before its subscriptions.")
    identity = visit.query.get("message-id", "")
    found = await (_of_id(visit, entity, identity) if identity else _newest(visit, entity))
    drops, further = found
    return visit.page(
        f"Dropped duplicates of {entity.name}",
        heading(visit, entity, "drops"),
        tag("h2", "Dropped duplicates"),
        _search(entity, identity),
        _answer(entity, identity, drops) if identity else None,
        forget_form(visit, entity, identity) if identity else None,
        _table(visit, entity, drops) if drops else tag("p", "None." if not identity else None),
        further,
        await forgotten(visit, entity),
    )


async def _of_id(visit: Visit, entity: Queue | Topic, identity: str) -> tuple[list[Duplicate], Markup | None]:
    after = visit.number("after")
    found = await visit.desk.broker.duplicates(entity.path, message_id=identity, limit=PAGE + 1, after=after)
    page = found[:PAGE]
    links = []
    if after:
        links.append(("From the beginning", link("entity/drops", path=entity.path, message_id=identity)))
    if len(found) > PAGE:
        following = page[-1].number
        links.append(("Later", link("entity/drops", path=entity.path, message_id=identity, after=following)))
    return page, _links(links)


async def _newest(visit: Visit, entity: Queue | Topic) -> tuple[list[Duplicate], Markup | None]:
    """Return a page of drops, newest first. The numbers of drops have no gaps, so a page is a range of numbers."""
    newest = (await visit.desk.broker.counts(entity.path)).duplicates
    before = min(visit.number("before", newest + 1), newest + 1)
    first = max(before - PAGE, 1)
    found = await visit.desk.broker.duplicates(entity.path, limit=PAGE, after=first - 1)
    page = [drop for drop in reversed(found) if drop.number < before]
    links = []
    if before <= newest:
        links.append(("Newest", link("entity/drops", path=entity.path)))
    # There is no next page if the record has forgotten all earlier drops.
    if first > 1 and page and page[-1].number == first:
        links.append(("Earlier", link("entity/drops", path=entity.path, before=first)))
    return page, _links(links)


def _links(links: Sequence[tuple[str, str]]) -> Markup | None:
    items = [tag("a", title, href=address) for title, address in links]
    return tag("nav", items, class_="pages", aria_label="Pages") if items else None


def _search(entity: Queue | Topic, identity: str) -> Markup:
    form = Filled({"message-id": identity})
    hint = "Was my message dropped, and which message was kept? Enter the exact MessageId."
    box = text_field(form, "message-id", "MessageId", type_="search", hint=hint)
    brought = hidden("path", entity.path)
    return tag(
        "form", brought, box, button("Find"), method="get", action=link("entity/drops"), class_="inline", role="search"
    )


def _answer(entity: Queue | Topic, identity: str, drops: Sequence[Duplicate]) -> Markup:
    explanation: list[Content]
    if drops:
        explanation = ["Yes: ", foreign(identity), " was dropped."]
    elif entity.window is None:
        explanation = ["No: duplicates are not detected here, so nothing is dropped."]
    else:
        explanation = [
            "No drop of ",
            foreign(identity),
            " is on record. The record keeps the newest drops, for 7 days at most. A message that was not dropped "
            "in that time was delivered, or was never sent here.",
        ]
    return tag("p", explanation, class_="notice dropped" if drops else "notice", role="status")


def _counted(drop: Duplicate) -> Content:
    """Return which id counted, if that is not the MessageId."""
    if drop.counted_by is None:
        return None
    return tag("p", "counted: ", foreign(drop.counted_by), " ", foreign(drop.counted_id or ""), class_="hint")


def _table(visit: Visit, entity: Queue | Topic, drops: Sequence[Duplicate]) -> Markup:
    titles = ("MessageId", "Dropped at", "Number", "Number of the original", "Accepted at")
    head = tag("thead", tag("tr", [tag("th", title, scope="col") for title in titles]))
    rows = []
    for drop in drops:
        winner: Content = "unknown"
        if drop.original_sequence is not None:
            winner = str(drop.original_sequence)
            if isinstance(entity, Queue) and visit.may(Operation.PEEK, entity.path):
                address = link("entity/messages", path=entity.path, **{"from": drop.original_sequence})
                winner = tag("a", winner, href=address)
        cells: list[Content] = [moment(drop.time), str(drop.sequence), winner]
        cells.append(moment(drop.original_time) if drop.original_time is not None else "unknown")
        name = tag("th", foreign(drop.message_id, class_="foreign id"), _counted(drop), scope="row")
        rows.append(
            tag("tr", name, [tag("td", cell, data_title=title) for title, cell in zip(titles[1:], cells, strict=True)])
        )
    caption = tag("caption", "Dropped duplicates", class_="unseen")
    return tag("table", caption, head, tag("tbody", rows), class_="stacked")
