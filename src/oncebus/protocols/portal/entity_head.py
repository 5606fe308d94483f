"""The top of every page about one entity: the breadcrumbs, its name, the actions on it, and the tabs."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.engine.store import Counts
from oncebus.model.access import Operation
from oncebus.model.entities import Entity, Queue, Subscription, Topic
from oncebus.protocols.portal.layout import Tab, tabs, top
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, tag
from oncebus.protocols.portal.visits import Visit

LOOKS = (Operation.READ_ENTITY, Operation.PEEK, Operation.READ_DROPS, Operation.SEND)
"""With any of these rights, a visitor may see the pages of an entity."""


def find_visible(visit: Visit) -> Entity:
    """Return the requested entity. Raises `AccessRefused` if the key permits no operation on it, and `NotFound`."""
    if not any(visit.may(operation, visit.path) for operation in LOOKS):
        visit.require(Operation.READ_ENTITY, visit.path)
    return visit.entity()


async def entity_page(
    visit: Visit, entity: Entity, here: str, title: str, *content: Content, status: int = 200, live: str | None = None
) -> Response:
    """Return a page about an entity. `here` names the current tab. The counts on the tabs need Manage."""
    counts = None
    if visit.may(Operation.READ_ENTITY, entity.path):
        [counts] = await visit.desk.counts_of([entity])
    above = [("Overview", link())]
    if isinstance(entity, Subscription):
        above.append((entity.topic, link("entity", path=entity.topic)))
    kind = type(entity).__name__
    actions: Content = None
    if visit.may(Operation.DELETE_ENTITY, entity.path) and here != "delete":
        address = link("entity/delete", path=entity.path)
        actions = tag("a", f"Delete {kind.lower()}", href=address, class_="button risky")
    heading = top([entity.name, " ", tag("span", kind, class_="kind")], *above, actions=actions)
    pages = tabs("About this entity", here, _pages(visit, entity, counts))
    return visit.page(title, heading, pages, *content, status=status, live=live)


def _pages(visit: Visit, entity: Entity, counts: Counts | None) -> list[Tab]:
    path = entity.path
    listed = [Tab("entity", "Activity", link("entity", path=path))]
    if not isinstance(entity, Topic) and visit.may(Operation.PEEK, path):
        held = None if counts is None else counts.active + counts.scheduled + counts.deferred
        listed.append(Tab("messages", "Messages", link("entity/messages", path=path), held))
        address = link("entity/messages", path=path, of="dead-letters")
        dead = None if counts is None else counts.dead_letter
        listed.append(Tab("dead-letters", "Dead letters", address, dead, is_bad=True))
        if counts is not None and counts.transfer_dead_letter:
            address = link("entity/messages", path=path, of="transfer-dead-letters")
            title = "Could not be forwarded"
            listed.append(Tab("transfer-dead-letters", title, address, counts.transfer_dead_letter, is_bad=True))
    if isinstance(entity, Queue | Topic):
        if visit.may(Operation.READ_DROPS, path):
            dropped = None if counts is None else counts.duplicates
            listed.append(Tab("duplicates", "Duplicates", link("entity/duplicates", path=path), dropped))
        if visit.may(Operation.SEND, path):
            listed.append(Tab("send", "Send", link("entity/send", path=path)))
    if visit.may(Operation.READ_ENTITY, path):
        listed.append(Tab("change", "Properties", link("entity/change", path=path)))
    if isinstance(entity, Queue | Topic) and visit.may(Operation.AUTHORIZATION_RULES, path):
        listed.append(Tab("policies", "Policies", link("policies", path=path)))
    return listed
