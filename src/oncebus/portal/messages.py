"""The pages that peek at messages and resubmit dead letters."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.access import Operation
from oncebus.broker.addresses import Address
from oncebus.broker.broker import Broker, Received
from oncebus.entities import NO_LIMIT, Queue, Subscription, Topic
from oncebus.errors import shown
from oncebus.http.errors import bad
from oncebus.http.paths import LAST_NUMBER, number_in
from oncebus.http.rendering import Allowance
from oncebus.portal.contents import body_shown, label_of, properties_list
from oncebus.portal.entity_head import heading
from oncebus.portal.fields import Filled, button, check_box, form_to, hidden, text_field
from oncebus.portal.links import link
from oncebus.portal.markup import Content, Markup, foreign, joined, tag
from oncebus.portal.visits import Visit
from oncebus.portal.wording import counted, moment, number, size_in_words
from oncebus.store import Outcome, State, SubQueue

PAGE = 20
MOST_BYTES = 16 << 20
"""The maximum total size of the bodies on one page, in bytes. Bodies are read as a whole."""

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
_STATES = {State.ACTIVE: "Active", State.DEFERRED: "Deferred", State.SCHEDULED: "Scheduled"}


async def show(visit: Visit) -> Response:
    """Return a page of messages that starts at the requested sequence number."""
    visit.require(Operation.PEEK, visit.path)
    entity = visit.entity()
    of = visit.query.get("of") or "messages"
    sub_queue = _place(of)
    if isinstance(entity, Topic):
        raise bad(f"The topic '{entity.path}' holds no messages: look into its subscriptions.")
    start = visit.number("from")
    may_resubmit = of == "dead-letters" and visit.may(Operation.RESUBMIT, entity.path)
    renderer = visit.desk.renderer
    async with renderer.page():
        found = await _peek(
            visit.desk.broker, Address(entity.path, sub_queue), start, visit.desk.catalogue.largest_message(entity)
        )
        # The page may have ended early because of its size.
        has_more = len(found) > PAGE or sum(len(each.body) for each in found) >= MOST_BYTES
        page = found[:PAGE]
        size = sum(len(each.message.head) + len(each.body) for each in page)
        cards = await renderer.make(size, lambda: _cards(page, may_resubmit))
    return visit.page(
        f"{_TITLES[of]} of {entity.name}",
        heading(visit, entity, "messages" if of == "messages" else "dead-letters"),
        tag("h2", _TITLES[of]),
        _explained(of, entity),
        _from(entity.path, of, start),
        _list(visit, entity, cards, may_resubmit),
        _further(entity.path, of, page, start, has_more),
        _purge_form(visit, entity, of) if page and visit.may(Operation.PURGE, entity.path) else None,
    )


async def purge(visit: Visit) -> Response:
    """Delete the messages if the visitor has confirmed it."""
    visit.require(Operation.PURGE, visit.path)
    entity, of = visit.entity(), visit.posted["of"] or "messages"
    sub_queue = _place(of)
    address = link("entity/messages", path=entity.path, of=of)
    if not visit.posted["sure"]:
        return visit.go_to(address, "Nothing was deleted. Check the box to confirm.")
    done = await visit.desk.broker.purge(Address(entity.path, sub_queue))
    notice = f"{counted(done.deleted, 'message')} deleted."
    if done.has_more:
        notice += f" There were too many for one step. {number(done.left)} are left: purge again."
    elif done.left:
        notice += f" {number(done.left)} are left: locked, deferred, scheduled, or new."
    return visit.go_to(address, notice)


async def resubmit(visit: Visit) -> Response:
    """Resubmit the chosen dead letters."""
    visit.require(Operation.RESUBMIT, visit.path)
    entity = visit.entity()
    numbers = [number_in({"number": each}, "number", 0, 0, LAST_NUMBER) for each in visit.posted.all("number")]
    address = link("entity/messages", path=entity.path, of="dead-letters")
    if not numbers:
        return visit.go_to(address, "Nothing was chosen.")
    outcomes = await visit.desk.broker.resubmit(entity.path, numbers)
    done = outcomes.count(Outcome.DONE)
    notice = f"{counted(done, 'dead letter')} resubmitted."
    if done < len(numbers):
        notice += f" {number(len(numbers) - done)} could not be resubmitted: a receiver holds them, or they are gone."
    return visit.go_to(address, notice)


def _place(of: str) -> SubQueue:
    if of not in PLACES:
        raise bad(f"The parameter 'of' has value {shown(of)}. Not one of {', '.join(PLACES)}.")
    return PLACES[of]


async def _peek(broker: Broker, address: Address, start: int, largest: int) -> list[Received]:
    """Return the messages of a page, and one more if there is a next page.

    Returns fewer if their bodies exceed `largest`.
    """
    at_once = max(min(PAGE + 1, MOST_BYTES // largest), 1)
    found: list[Received] = []
    size = 0
    while len(found) <= PAGE and size < MOST_BYTES:
        some = await broker.peek(address, start, min(at_once, PAGE + 1 - len(found)))
        if not some:
            break
        found += some
        size += sum(len(each.body) for each in some)
        start = some[-1].message.sequence + 1
    return found


def _explained(of: str, entity: Queue | Subscription) -> Markup:
    if of == "messages":
        return tag("p", "Looking at messages does not take them: receivers still get them.", class_="hint")
    if of == "dead-letters":
        other = tag(
            "a",
            "could not be forwarded",
            href=link("entity/messages", path=entity.path, of="transfer-dead-letters"),
        )
        notice = "A resubmitted dead letter becomes a new message of this entity. It skips duplicate detection. "
        return tag("p", notice, "See also: messages that ", other, ".", class_="hint")
    return tag("p", "Messages that the forwarding target refused, or that were forwarded too often.", class_="hint")


def _from(path: str, of: str, start: int) -> Markup:
    form = Filled({"from": str(start) if start else ""})
    box = text_field(form, "from", "From number", inputmode="numeric", class_="short")
    brought = [hidden("path", path), hidden("of", of)]
    return tag("form", brought, box, button("Show"), method="get", action=link("entity/messages"), class_="inline")


def _purge_form(visit: Visit, entity: Queue | Subscription, of: str) -> Markup:
    explanation = (
        "Deletes all active messages that are here now, also on other pages. Locked, deferred and scheduled messages "
        "stay. The ids of deleted messages stay remembered."
    )
    return tag(
        "details",
        tag("summary", "Purge"),
        form_to(
            link("entity/purge"),
            visit.seal,
            hidden("path", entity.path),
            hidden("of", of),
            tag("p", explanation, class_="hint"),
            check_box(Filled({}), "sure", "I understand that deleted messages cannot be restored."),
            button("Delete all", class_="danger"),
            class_="wide",
        ),
    )


def _cards(page: list[Received], are_choosable: bool) -> Markup | None:
    """Return the list of messages for the page. Runs in a worker thread."""
    allowance = Allowance()
    return tag("ol", [_card(each, are_choosable, allowance) for each in page], class_="cards") if page else None


def _list(visit: Visit, entity: Queue | Subscription, cards: Markup | None, may_resubmit: bool) -> Markup:
    if cards is None:
        return tag("p", "None.")
    if not may_resubmit:
        return cards
    brought = hidden("path", entity.path)
    return form_to(link("entity/resubmit"), visit.seal, brought, cards, button("Resubmit the chosen", class_="main"))


def _card(received: Received, is_choosable: bool, allowance: Allowance) -> Markup:
    message = received.message
    label = label_of(message.head)
    title: list[Content] = [foreign(message.message_id, class_="foreign id")]
    if label:
        title += [" ", foreign(label[:200], class_="foreign label")]
    choose = None
    if is_choosable:
        box = f"choose-{message.sequence}"
        choose = tag(
            "div",
            tag("input", type="checkbox", name="number", value=message.sequence, id=box),
            tag("label", "Choose", tag("span", f" number {message.sequence}", class_="unseen"), for_=box),
            class_="check",
        )
    facts: list[tuple[str, Content]] = [
        ("Number", str(message.sequence)),
        ("Enqueued", moment(message.enqueued)),
        ("State", _STATES[message.state]),
        ("Deliveries", number(message.deliveries)),
        ("Size", size_in_words(message.size)),
    ]
    if message.session is not None:
        facts.append(("Session", foreign(message.session)))
    if message.partition_key is not None:
        facts.append(("Partition key", foreign(message.partition_key)))
    if message.scheduled is not None:
        facts.append(("Scheduled for", moment(message.scheduled)))
    if message.expires is not None and message.expires < message.enqueued + NO_LIMIT:
        facts.append(("Expires", moment(message.expires)))
    if message.reason is not None:
        facts.append(("Reason", foreign(message.reason)))
    if message.description is not None:
        facts.append(("Description", foreign(message.description[:1000])))
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    details = tag(
        "details",
        tag("summary", "Properties and body"),
        properties_list(message.head, allowance),
        body_shown(received.body, allowance),
    )
    return tag("li", tag("h3", title), choose, tag("dl", rows, class_="facts row"), details, class_="card")


def _further(path: str, of: str, page: list[Received], start: int, has_more: bool) -> Markup | None:
    links = []
    if start:
        links.append(tag("a", "From the beginning", href=link("entity/messages", path=path, of=of)))
    if has_more and page:
        following = page[-1].message.sequence + 1
        links.append(
            tag("a", "Next", href=link("entity/messages", path=path, of=of, **{"from": following}), rel="next")
        )
    return tag("nav", joined(links), class_="pages", aria_label="Pages") if links else None
