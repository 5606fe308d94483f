"""The page that shows quarantined messages, and releases or discards them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.engine.store import Outcome, Quarantined
from oncebus.model.access import Operation
from oncebus.protocols.portal.forms import button
from oncebus.protocols.portal.layout import empty, further, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, foreign, tag
from oncebus.protocols.portal.tables import Column, TableRow, choice_box, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import ago, count_in_words, number, size_in_words

PAGE = 50
_LONGEST = 1000
_COLUMNS = (
    Column("MessageId"),
    Column("Sent to"),
    Column("Reason"),
    Column("Description"),
    Column("At"),
    Column("Number", is_number=True, is_wide=True),
    Column("Size", is_number=True, is_wide=True),
)


async def show(visit: Visit) -> Response:
    """Return a page of quarantined messages, of one entity or of all."""
    visit.require(Operation.QUARANTINE)
    after = visit.number("after")
    entity = visit.entity() if visit.path else None
    found = await visit.desk.broker.quarantine.page(visit.path or None, PAGE + 1, after)
    page = found[:PAGE]
    hint = "Messages that could not be routed to the subscriptions of their topic. They stay here until you decide."
    above = [("Overview", link())]
    if entity is not None:
        above.append((entity.path, link("entity", path=entity.path)))
    return visit.page(
        "Quarantine",
        top("Quarantine", *above),
        tag("p", hint, class_="hint"),
        _list(visit, page) if page else empty("Nothing is in quarantine."),
        _further(visit, page, after, len(found) > PAGE),
        here=link("quarantine"),
    )


async def decide(visit: Visit) -> Response:
    """Release the chosen messages, or discard them once that was confirmed."""
    broker, numbers = visit.desk.broker, visit.chosen_numbers()
    address = link("quarantine", path=visit.path or None)
    if visit.one_of("action", ("release", "discard")) == "release":
        visit.require(Operation.RELEASE_QUARANTINED)
        return visit.go_to(address, _notice(await broker.quarantine.release(numbers), "released"))
    visit.require(Operation.DISCARD_QUARANTINED)
    if numbers and not visit.form["sure"]:
        return _confirm(visit, numbers, address)
    return visit.go_to(address, _notice(await broker.quarantine.discard(numbers), "discarded"))


def _confirm(visit: Visit, numbers: Sequence[int], back: str) -> Response:
    title = f"Discard {count_in_words(len(numbers), 'message')}"
    text = tag("p", f"{title} from quarantine? This cannot be undone.", class_="lead")
    question = visit.ask("quarantine", title, back, action="discard", number=numbers)
    return visit.page(title, top(title, ("Overview", link()), ("Quarantine", back)), text, question)


def _notice(outcomes: Sequence[Outcome], what: str) -> str:
    if not outcomes:
        return "Nothing was chosen."
    done = outcomes.count(Outcome.DONE)
    gone = f" {number(len(outcomes) - done)} were no longer there." if done < len(outcomes) else ""
    return f"{count_in_words(done, 'message')} {what}.{gone}"


def _list(visit: Visit, page: Sequence[Quarantined]) -> Markup:
    released = "Released messages are routed by the current rules. They skip duplicate detection."
    return visit.form_to(
        "quarantine",
        tag(
            "div",
            tag("span", "With the chosen:", class_="note"),
            button("Release", class_="main", name="action", value="release"),
            button("Discard…", class_="risky", name="action", value="discard"),
            tag("span", released, class_="note"),
            class_="toolbar",
        ),
        table("Quarantined messages", _COLUMNS, [_row(visit, row) for row in page], choose_all=True),
    )


def _row(visit: Visit, row: Quarantined) -> TableRow:
    entity = visit.desk.catalogue.entity(row.entity)
    place: Content = "an entity that is gone"
    if entity is not None:
        place = tag("a", entity.path, href=link("entity", path=entity.path))
    name: list[Content] = [foreign(row.message_id, class_="foreign id")]
    if row.session is not None:
        name += [" ", foreign(row.session, class_="foreign label")]
    cells = [
        place,
        foreign(row.reason or "unknown"),
        foreign((row.description or "none")[:_LONGEST]),
        ago(row.time, visit.now),
        str(row.sequence),
        size_in_words(row.size),
    ]
    return TableRow(name, cells, choose=choice_box(row.number, f"Choose quarantined message {row.number}"))


def _further(visit: Visit, page: Sequence[Quarantined], after: int, has_more: bool) -> Markup | None:
    links = []
    if after:
        links.append(tag("a", "From the beginning", href=link("quarantine", path=visit.path or None)))
    if has_more:
        following = link("quarantine", path=visit.path or None, after=page[-1].number)
        links.append(tag("a", "Later", href=following, rel="next"))
    return further(links)
