"""Purging: deletes all active messages of a queue, a subscription or its dead letters, once that was confirmed."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.broker.addresses import Address
from oncebus.model.access import Operation
from oncebus.protocols.portal.entity_head import heading
from oncebus.protocols.portal.fields import button, form_to, hidden
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import tag
from oncebus.protocols.portal.messages import holder, place_of
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import counted, number

_EXPLANATION = (
    "This deletes all active messages that are here now, also on other pages. Locked, deferred and scheduled messages "
    "stay. The ids of deleted messages stay remembered. This cannot be undone."
)


async def purge(visit: Visit) -> Response:
    """Ask whether to delete all messages; if that was confirmed, delete them."""
    visit.require(Operation.PURGE, visit.path)
    entity, of = holder(visit), visit.posted["of"] or "messages"
    sub_queue = place_of(of)
    address = link("entity/messages", path=entity.path, of=of)
    if visit.posted["sure"]:
        done = await visit.desk.broker.purge(Address(entity.path, sub_queue))
        notice = f"{counted(done.deleted, 'message')} deleted."
        if done.has_more:
            notice += f" There were too many for one step. {number(done.left)} are left: purge again."
        elif done.left:
            notice += f" {number(done.left)} are left: locked, deferred, scheduled, or new."
        return visit.go_to(address, notice)
    what = {"messages": "messages", "dead-letters": "dead letters"}.get(of, "messages that could not be forwarded")
    content = form_to(
        link("entity/purge"),
        visit.seal,
        [hidden("path", entity.path), hidden("of", of), hidden("sure", "yes")],
        button(f"Delete all {what}", class_="danger"),
        " ",
        tag("a", "Cancel", href=address, class_="button"),
    )
    title = f"Purge all {what} of '{entity.path}'?"
    return visit.page(title, await heading(visit, entity, of), tag("h2", title), tag("p", _EXPLANATION), content)
