"""The page that shows messages or dead letters of an entity as a table, with a panel for one of them."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Received
from oncebus.broker.looking import MOST_READ, Peeked
from oncebus.engine.store import SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Queue, Subscription, Topic
from oncebus.protocols.http.rendering import Allowance
from oncebus.protocols.portal.contents import STATES, label_of, no_panel, panel, preview
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.forms import Form, button, hidden, search_form, text_field
from oncebus.protocols.portal.layout import empty, further
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, foreign, join_markup, tag
from oncebus.protocols.portal.tables import Column, TableRow, choice_box, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import ago, number, size_in_words

PAGE = 50
MOST_BYTES = 16 << 20
"""The maximum total size of the messages on one page, in bytes. Bodies are read as a whole."""
_LONGEST_LABEL = 80

PLACES = {
    "messages": SubQueue.MAIN,
    "dead-letters": SubQueue.DEAD_LETTER,
    "transfer-dead-letters": SubQueue.TRANSFER_DEAD_LETTER,
}
_TITLES = {
    "messages": "Messages",
    "dead-letters": "Dead letters",
    "transfer-dead-letters": "Messages that could not be forwarded",
}
_NONE = {
    "messages": "There are no messages.",
    "dead-letters": "There are no dead letters.",
    "transfer-dead-letters": "There are none.",
}
_HINTS = {
    "messages": "Looking at messages does not take them: receivers still get them.",
    "dead-letters": "A resubmitted dead letter becomes a new message of this entity. It skips duplicate detection.",
    "transfer-dead-letters": "Messages that the forwarding target refused, or that were forwarded too often.",
}


@dataclass(frozen=True, slots=True)
class _Request:
    """The parameters of the page."""

    path: str
    of: str
    start: int
    message_id: str
    session: str
    shown: int | None

    @property
    def is_search(self) -> bool:
        return bool(self.message_id or self.session)

    def address(self, **changed: int | None) -> str:
        """Return the address of the page with some parameters changed: `start` or `show`."""
        given = {"from": self.start or None, "show": None, **changed}
        return link(
            "entity/messages",
            path=self.path,
            of=self.of if self.of != "messages" else None,
            message_id=self.message_id or None,
            session=self.session or None,
            **given,
        )


def find_holder(visit: Visit) -> Queue | Subscription:
    """Return the requested queue or subscription. Raises `BadRequest` for a topic."""
    entity = visit.entity()
    if isinstance(entity, Topic):
        raise BadRequest(f"The topic '{entity.path}' holds no messages: look into its subscriptions.")
    return entity


async def show(visit: Visit) -> Response:
    """Return a page of messages that starts at the requested sequence number."""
    visit.require(Operation.PEEK, visit.path)
    of, entity = visit.one_of("of", PLACES, "messages"), find_holder(visit)
    chosen = visit.number("show") if visit.query.get("show") else None
    ask = _Request(
        entity.path,
        of,
        visit.number("from"),
        visit.query.get("message-id", ""),
        visit.query.get("session", ""),
        chosen,
    )
    address = Address(entity.path, PLACES[of])
    renderer = visit.desk.renderer
    async with renderer.page(visit.grant.signer):
        page = await _peek(visit, address, ask)
        chosen_one = await _peek_chosen(visit, address, page.found, ask)
        size = sum(len(each.message.head) + len(each.body) for each in page.found)
        now = visit.now
        rows, beside = await renderer.worker.run(
            visit.grant.signer,
            size,
            lambda: (_table(page.found, ask, now), _panel(visit, chosen_one, ask) if chosen is not None else None),
        )
    content = tag("div", _list(visit, ask, rows), _further(ask, page), class_="list")
    return await entity_page(
        visit,
        entity,
        of,
        f"{_TITLES[of]} of {entity.name}",
        tag("h2", _TITLES[of], class_="unseen"),
        _search(ask),
        tag("div", content, beside or no_panel(), class_="split"),
    )


async def _peek(visit: Visit, address: Address, ask: _Request) -> Peeked:
    """Return the messages of the page, and where the next page begins."""
    broker = visit.desk.broker
    if ask.is_search:
        return await broker.looking.search(
            address,
            ask.start,
            PAGE,
            message_id=ask.message_id or None,
            session=ask.session or None,
            most_bytes=MOST_BYTES,
        )
    found = await broker.peek(address, ask.start, PAGE + 1, most_bytes=MOST_BYTES)
    # The page may have ended early because of its size.
    is_cut = (
        sum(each.message.size for each in found) + visit.desk.catalogue.largest_message(visit.entity()) > MOST_BYTES
    )
    if len(found) > PAGE:
        return Peeked(found[:PAGE], found[PAGE].message.sequence)
    return Peeked(found, found[-1].message.sequence + 1 if found and is_cut else None)


async def _peek_chosen(visit: Visit, address: Address, page: list[Received], ask: _Request) -> Received | None:
    """Return the message for the panel."""
    if ask.shown is None:
        return None
    there = next((each for each in page if each.message.sequence == ask.shown), None)
    if there is None:
        found = await visit.desk.broker.peek(address, ask.shown, 1)
        there = next((each for each in found if each.message.sequence == ask.shown), None)
    return there


def _panel(visit: Visit, received: Received | None, ask: _Request) -> Markup:
    if received is None:
        return no_panel(f"Message {ask.shown} is no longer here: it was received, moved or deleted.")
    return panel(received, visit.desk.catalogue, ask.address())


def _search(ask: _Request) -> Markup:
    values = {"message-id": ask.message_id, "session": ask.session, "from": str(ask.start) if ask.start else ""}
    form = Form(values)
    fields = [
        text_field(form, "message-id", "MessageId", type_="search"),
        text_field(form, "session", "Session", type_="search"),
        text_field(form, "from", "From number", inputmode="numeric", class_="short"),
    ]
    brought = [hidden("path", ask.path), hidden("of", ask.of)]
    search = search_form(link("entity/messages"), "In this table", brought, fields)
    return join_markup([tag("p", _HINTS[ask.of], class_="hint"), search])


def _table(page: list[Received], ask: _Request, now: int) -> Markup | None:
    """Return the table of messages. Runs in a worker thread."""
    if not page:
        return None
    allowance = Allowance()
    has_reason = ask.of != "messages"
    columns = [Column("MessageId"), Column("Number", is_number=True, is_wide=True)]
    columns += [Column("Reason")] if has_reason else [Column("State", is_wide=True)]
    columns += [
        Column("Body"),
        Column("Enqueued", is_wide=has_reason),
        Column("Deliveries", is_number=True, is_wide=True),
        Column("Size", is_number=True, is_wide=True),
    ]
    rows = [_row(each, ask, has_reason, allowance, now) for each in page]
    return table(_TITLES[ask.of], columns, rows, choose_all=True)


def _row(received: Received, ask: _Request, has_reason: bool, allowance: Allowance, now: int) -> TableRow:
    message = received.message
    label = label_of(message.head)
    identity = tag(
        "a",
        foreign(message.message_id, class_="foreign id"),
        href=ask.address(show=message.sequence),
        data_panel=True,
    )
    name: list[Content] = [identity]
    if label:
        name += [" ", foreign(label[:_LONGEST_LABEL], class_="foreign label")]
    why: Content = STATES[message.state]
    if has_reason:
        why = foreign(message.reason[:_LONGEST_LABEL]) if message.reason else tag("span", "none", class_="none")
    cells: list[Content] = [
        str(message.sequence),
        why,
        preview(received.body, allowance),
        ago(message.enqueued, now),
        number(message.deliveries),
        size_in_words(message.size),
    ]
    box = choice_box(message.sequence, f"Choose number {message.sequence}")
    return TableRow(name, cells, choose=box, is_current=ask.shown == message.sequence)


def _list(visit: Visit, ask: _Request, rows: Markup | None) -> Markup:
    if rows is None:
        if ask.is_search:
            return empty("No message matches.")
        return empty(_NONE[ask.of] if not ask.start else f"There are none from number {ask.start} on.")
    actions = [button("Download", formaction=link("entity/download"))]
    is_dead = ask.of == "dead-letters"
    if is_dead and visit.may(Operation.RESUBMIT, ask.path):
        actions.insert(0, button("Resubmit", class_="main", formaction=link("entity/resubmit")))
    if ask.of != "messages" and visit.may(Operation.DELETE_MESSAGES, ask.path):
        actions.append(button("Discard…", class_="risky", formaction=link("entity/discard")))
    purge = None
    if visit.may(Operation.PURGE, ask.path):
        purge = tag("span", button("Purge all…", class_="risky", formaction=link("entity/purge")), class_="apart")
    bar = tag("div", tag("span", "With the chosen:", class_="note"), actions, purge, class_="toolbar")
    return visit.form_to("entity/download", hidden("of", ask.of), bar, rows)


def _further(ask: _Request, page: Peeked) -> Markup | None:
    links: list[Content] = []
    if ask.start:
        links.append(tag("a", "From the beginning", href=ask.address(**{"from": None})))
    if page.following is not None:
        title = "Next"
        if ask.is_search and len(page.found) < PAGE:
            links.append(tag("span", f"{number(MOST_READ)} messages were searched."))
            title = "Search on"
        links.append(tag("a", title, href=ask.address(**{"from": page.following}), rel="next"))
    return further(links)
