"""The page that finds a MessageId in all entities: messages that are there now, in quarantine or dropped."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from oncebus.broker.looking import MOST_READ, NEWEST, Searched
from oncebus.engine.store import Duplicate, Found, Stage, State, SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest, Topic
from oncebus.protocols.portal.contents import STATES
from oncebus.protocols.portal.duplicates import lateness
from oncebus.protocols.portal.layout import LONGEST_ID, empty, section_head, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, foreign, tag
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import ago, number, span

MOST_DROPS = 100
_PLACES = {
    SubQueue.MAIN: ("Messages", None),
    SubQueue.DEAD_LETTER: ("Dead letters", "dead-letters"),
    SubQueue.TRANSFER_DEAD_LETTER: ("Could not be forwarded", "transfer-dead-letters"),
}
_STAGES = {
    Stage.READY: STATES[State.ACTIVE],
    Stage.DEFERRED: STATES[State.DEFERRED],
    Stage.SCHEDULED: STATES[State.SCHEDULED],
    Stage.LOCKED: "Locked by a consumer",
    Stage.FORWARD: "Being forwarded",
    Stage.DEFERRED_LOCKED: "Deferred, locked by a consumer",
    Stage.RETURN: "On its way back",
}


async def show(visit: Visit) -> Response:
    """Return the page. It reads a bounded number of messages, newest first, and has a link to go on with older ones."""
    visit.require(Operation.ENUMERATE)
    identity = visit.query.get("message-id", "")
    if not identity:
        raise BadRequest("The parameter 'message-id' is missing. Enter the exact MessageId.")
    if len(identity) > 2 * LONGEST_ID:
        raise BadRequest(f"The MessageId has {number(len(identity))} characters. At most {LONGEST_ID} are possible.")
    broker = visit.desk.broker
    before = visit.number("before", NEWEST) or NEWEST
    searched = await broker.looking.search_everywhere(identity, before)
    drops = await broker.looking.duplicates_with_id(identity, MOST_DROPS) if before == NEWEST else []
    found = {(each.entity, each.sub_queue, each.sequence): each for each in searched.found}
    for drop in drops:
        # The record names the original, so that it is found even among very many messages.
        if drop.original_sequence is not None:
            originals = await broker.looking.present(drop.entity, [drop.original_sequence])
            found |= {(each.entity, each.sub_queue, each.sequence): each for each in originals}
    held = [each for each in found.values() if visit.desk.catalogue.entity(each.entity) is not None]
    return visit.page(
        "Search",
        top(["MessageId ", foreign(identity, class_="foreign id")], ("Overview", link())),
        section_head("Messages that are here now"),
        _messages(visit, held) if held else _nothing(drops, searched),
        _further(identity, searched),
        await _quarantine_notice(visit, identity),
        section_head("Dropped as duplicates"),
        _drops(visit, drops) if drops else empty("No drop of this MessageId is on record."),
    )


def _messages(visit: Visit, found: Sequence[Found]) -> Markup:
    now, catalogue = visit.now, visit.desk.catalogue
    columns = [Column("Entity"), Column("Place"), Column("State"), Column("Number", is_number=True), Column("Enqueued")]
    rows = []
    for each in found:
        entity = catalogue.entity(each.entity)
        if entity is None:
            continue
        place, of = _PLACES[SubQueue(each.sub_queue)]
        shown: Content = str(each.sequence)
        if not isinstance(entity, Topic):
            address = link("entity/messages", path=entity.path, of=of, **{"from": each.sequence, "show": each.sequence})
            shown = tag("a", shown, href=address)
        name = tag("a", entity.path, href=link("entity", path=entity.path))
        # A dead letter is active for receivers of dead letters only.
        is_dead = each.sub_queue != SubQueue.MAIN
        state = None if is_dead and each.stage == Stage.READY else _STAGES[Stage(each.stage)]
        rows.append(TableRow(name, [place, state, shown, ago(each.enqueued, now)]))
    return table("Messages with this MessageId", columns, rows)


def _nothing(drops: Sequence[Duplicate], searched: Searched) -> Markup:
    if searched.following is not None:
        return empty(f"None among the {number(MOST_READ)} messages that were searched.")
    if drops:
        return empty("None: the original is already consumed.")
    return empty("None: it is already consumed, or it was never sent here.")


async def _quarantine_notice(visit: Visit, identity: str) -> Markup | None:
    """Return a notice if messages with this id are in quarantine."""
    found = [visit.desk.catalogue.entity(each) for each in await visit.desk.broker.quarantine.search(identity)]
    paths = sorted({each.path for each in found if each is not None})
    if not paths:
        return None
    links = [[" ", tag("a", path, href=link("quarantine", path=path))] for path in paths]
    return tag("p", "In quarantine, sent to:", links, class_="notice warning")


def _further(identity: str, searched: Searched) -> Markup | None:
    if searched.following is None:
        return None
    address = link("search", message_id=identity, before=searched.following)
    text = f"{number(MOST_READ)} messages were searched, newest first. "
    return tag("p", text, tag("a", "Search older ones", href=address), class_="pages")


def _drops(visit: Visit, drops: Sequence[Duplicate]) -> Markup:
    columns = [
        Column("Entity"),
        Column("Dropped"),
        Column("After the original", is_number=True, short="after"),
        Column("Original"),
    ]
    now, rows = visit.now, []
    for drop in drops:
        entity = visit.desk.catalogue.entity(drop.entity)
        late = lateness(drop)
        original = "unknown" if drop.original_sequence is None else f"number {drop.original_sequence}"
        name: Content = "deleted meanwhile"
        if entity is not None:
            name = tag("a", entity.path, href=link("entity/duplicates", path=entity.path, message_id=drop.message_id))
        rows.append(TableRow(name, [ago(drop.time, now), span(late) if late is not None else "unknown", original]))
    return table("Dropped duplicates with this MessageId", columns, rows)
