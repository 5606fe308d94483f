"""The page that shows quarantined messages, and releases or discards them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.access import Operation
from oncebus.errors import shown
from oncebus.http.errors import bad
from oncebus.http.paths import LAST_NUMBER, number_in
from oncebus.portal.entity_head import heading
from oncebus.portal.fields import Filled, button, check_box, form_to, group, hidden
from oncebus.portal.links import link
from oncebus.portal.markup import Content, Markup, foreign, tag
from oncebus.portal.visits import Visit
from oncebus.portal.wording import counted, moment, number, size_in_words
from oncebus.store import Outcome, Quarantined

PAGE = 50


async def show(visit: Visit) -> Response:
    """Return a page of quarantined messages, of one entity or of all."""
    visit.require(Operation.QUARANTINE)
    after = visit.number("after")
    entity = visit.entity() if visit.path else None
    found = await visit.desk.broker.quarantined(visit.path or None, PAGE + 1, after)
    page = found[:PAGE]
    if entity is not None:
        top = heading(visit, entity, "quarantine")
        title = tag("h2", "Quarantine")
    else:
        top, title = Markup(), tag("h1", "Quarantine")
    hint = "Messages that could not be routed to the subscriptions of their topic. They stay here until you decide."
    return visit.page(
        "Quarantine",
        top,
        title,
        tag("p", hint, class_="hint"),
        _list(visit, page) if page else tag("p", "Nothing is in quarantine."),
        _further(visit, page, after, len(found) > PAGE),
        here=link("quarantine"),
    )


async def decide(visit: Visit) -> Response:
    """Release or discard the chosen messages."""
    action = visit.posted["action"]
    broker = visit.desk.broker
    numbers = [number_in({"number": each}, "number", 0, 0, LAST_NUMBER) for each in visit.posted.all("number")]
    address = link("quarantine", path=visit.path or None)
    if action == "release":
        visit.require(Operation.RELEASE_QUARANTINED)
        return visit.go_to(address, _notice(await broker.release_quarantined(numbers), "released"))
    if action != "discard":
        raise bad(f"The action {shown(action)} is not one of release, discard.")
    visit.require(Operation.DISCARD_QUARANTINED)
    if not visit.posted["sure"]:
        return visit.go_to(address, "Nothing was discarded. Check the box to confirm.")
    return visit.go_to(address, _notice(await broker.discard_quarantined(numbers), "discarded"))


def _notice(outcomes: Sequence[Outcome], what: str) -> str:
    if not outcomes:
        return "Nothing was chosen."
    done = outcomes.count(Outcome.DONE)
    gone = f" {number(len(outcomes) - done)} were no longer there." if done < len(outcomes) else ""
    return f"{counted(done, 'message')} {what}.{gone}"


def _list(visit: Visit, page: Sequence[Quarantined]) -> Markup:
    released = "Released messages are routed by the current rules. They skip duplicate detection."
    return form_to(
        link("quarantine"),
        visit.seal,
        hidden("path", visit.path),
        tag("ol", [_card(visit, row) for row in page], class_="cards"),
        group(
            "Try again",
            tag("p", released, class_="hint"),
            button("Release the chosen", class_="main", name="action", value="release"),
            class_="decision",
        ),
        group(
            "Discard",
            check_box(Filled({}), "sure", "I understand that discarded messages cannot be restored."),
            button("Discard the chosen", class_="danger", name="action", value="discard"),
            class_="decision",
        ),
    )


def _card(visit: Visit, row: Quarantined) -> Markup:
    entity = visit.desk.catalogue.entity(row.entity)
    place: Content = "an entity that is gone"
    if entity is not None:
        place = tag("a", entity.path, href=link("entity", path=entity.path))
    facts: list[tuple[str, Content]] = [
        ("Sent to", place),
        ("At", moment(row.time)),
        ("Number", str(row.sequence)),
        ("Size", size_in_words(row.size)),
        ("Reason", foreign(row.reason or "unknown")),
        ("Description", foreign((row.description or "none")[:1000])),
    ]
    if row.session is not None:
        facts.append(("Session", foreign(row.session)))
    box = f"choose-{row.number}"
    choose = tag(
        "div",
        tag("input", type="checkbox", name="number", value=row.number, id=box),
        tag("label", "Choose", tag("span", f" quarantined message {row.number}", class_="unseen"), for_=box),
        class_="check",
    )
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    title = tag("h3", foreign(row.message_id, class_="foreign id"))
    return tag("li", title, choose, tag("dl", rows, class_="facts row"), class_="card")


def _further(visit: Visit, page: Sequence[Quarantined], after: int, has_more: bool) -> Markup | None:
    links = []
    if after:
        links.append(tag("a", "From the beginning", href=link("quarantine", path=visit.path or None)))
    if has_more:
        following = link("quarantine", path=visit.path or None, after=page[-1].number)
        links.append(tag("a", "Later", href=following, rel="next"))
    return tag("nav", links, class_="pages", aria_label="Pages") if links else None
