"""The top of every page about one entity: its name, the breadcrumbs, and the tabs."""

from __future__ import annotations

from oncebus.access import Operation
from oncebus.entities import Entity, Queue, Subscription, Topic
from oncebus.portal.layout import tabs, trail
from oncebus.portal.links import link
from oncebus.portal.markup import Markup, joined, tag
from oncebus.portal.visits import Visit

LOOKS = (Operation.READ_ENTITY, Operation.PEEK, Operation.READ_DROPS, Operation.SEND)
"""With any of these rights, a visitor may see the pages of an entity."""


def seen(visit: Visit) -> Entity:
    """Return the requested entity. Raises `AccessRefused` if the key permits no operation on it, and `NotFound`."""
    if not any(visit.may(operation, visit.path) for operation in LOOKS):
        visit.require(Operation.READ_ENTITY, visit.path)
    return visit.entity()


def heading(visit: Visit, entity: Entity, here: str) -> Markup:
    """Return the top of a page. `here` names the current tab."""
    above = None
    if isinstance(entity, Subscription):
        above = trail(("Overview", link()), (entity.topic, link("entity", path=entity.topic)))
    kind = tag("span", type(entity).__name__, class_="kind")
    title = tag("h1", entity.name, " ", kind)
    return joined([above, title, tabs("About this entity", here, _pages(visit, entity))])


def _pages(visit: Visit, entity: Entity) -> list[tuple[str, str, str]]:
    path = entity.path
    listed = [("entity", "Activity", link("entity", path=path))]
    if not isinstance(entity, Topic) and visit.may(Operation.PEEK, path):
        listed.append(("messages", "Messages", link("entity/messages", path=path)))
        listed.append(("dead-letters", "Dead letters", link("entity/messages", path=path, of="dead-letters")))
    if isinstance(entity, Queue | Topic):
        if visit.may(Operation.READ_DROPS, path):
            listed.append(("drops", "Dropped duplicates", link("entity/drops", path=path)))
        if visit.may(Operation.SEND, path):
            listed.append(("send", "Send", link("entity/send", path=path)))
    if visit.may(Operation.QUARANTINE) and isinstance(entity, Queue | Topic):
        listed.append(("quarantine", "Quarantine", link("quarantine", path=path)))
    if visit.may(Operation.READ_ENTITY, path):
        listed.append(("change", "Properties", link("entity/change", path=path)))
    if visit.may(Operation.DELETE_ENTITY, path):
        listed.append(("delete", "Delete", link("entity/delete", path=path)))
    return listed
