"""What can be done with messages: resubmit, discard or download the chosen ones, and purge all."""

from __future__ import annotations

import json
import re

from starlette.responses import Response

from oncebus.broker.addresses import Address
from oncebus.broker.broker import Received
from oncebus.engine.store import Outcome, SubQueue
from oncebus.model.access import Operation
from oncebus.model.entities import BadRequest
from oncebus.protocols.http import receiving
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.layout import PRIVATE
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import tag
from oncebus.protocols.portal.messages import MOST_BYTES, PAGE, PLACES, find_holder
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import count_in_words, number

NOTHING = "Nothing was chosen."
_PURGES = (
    "This deletes all active messages that are here now, also on other pages. Locked, deferred and scheduled messages "
    "stay. The ids of deleted messages stay remembered. This cannot be undone."
)


async def resubmit(visit: Visit) -> Response:
    """Resubmit the chosen dead letters."""
    visit.require(Operation.RESUBMIT, visit.path)
    entity = visit.entity()
    numbers = _numbers(visit)
    address = link("entity/messages", path=entity.path, of="dead-letters")
    if not numbers:
        return visit.go_to(address, NOTHING)
    outcomes = await visit.desk.broker.resubmit(entity.path, numbers)
    return visit.go_to(address, _notice(outcomes.count(Outcome.DONE), len(numbers), "resubmitted"))


async def discard(visit: Visit) -> Response:
    """Ask whether to discard the chosen dead letters; if that was confirmed, discard them."""
    visit.require(Operation.DELETE_MESSAGES, visit.path)
    of, entity = visit.one_of("of", PLACES, "dead-letters"), find_holder(visit)
    sub_queue = PLACES[of]
    if sub_queue is SubQueue.MAIN:
        raise BadRequest(f"Messages of '{entity.path}' are not discarded here: only dead letters are.")
    numbers = _numbers(visit)
    address = link("entity/messages", path=entity.path, of=of)
    if not numbers:
        return visit.go_to(address, NOTHING)
    if visit.form["sure"]:
        outcomes = await visit.desk.broker.discard_dead_letters(Address(entity.path, sub_queue), numbers)
        return visit.go_to(address, _notice(outcomes.count(Outcome.DONE), len(numbers), "discarded"))
    title = f"Discard {count_in_words(len(numbers), 'dead letter')}"
    text = tag("p", f"{title} of '{entity.path}'? This cannot be undone.", class_="lead")
    question = visit.ask("entity/discard", title, address, of=of, number=numbers)
    return await entity_page(visit, entity, of, title, text, question)


async def purge(visit: Visit) -> Response:
    """Ask whether to delete all messages; if that was confirmed, delete them."""
    visit.require(Operation.PURGE, visit.path)
    of, entity = visit.one_of("of", PLACES, "messages"), find_holder(visit)
    address = link("entity/messages", path=entity.path, of=of)
    if visit.form["sure"]:
        done = await visit.desk.broker.purge(Address(entity.path, PLACES[of]))
        notice = f"{count_in_words(done.deleted, 'message')} deleted."
        if done.has_more:
            notice += f" There were too many for one step. {number(done.left)} are left: purge again."
        elif done.left:
            notice += f" {number(done.left)} are left: locked, deferred, scheduled, or new."
        return visit.go_to(address, notice)
    what = {"messages": "messages", "dead-letters": "dead letters"}.get(of, "messages that could not be forwarded")
    title = f"Purge all {what} of '{entity.path}'?"
    question = visit.ask("entity/purge", f"Delete all {what}", address, of=of)
    return await entity_page(visit, entity, of, title, tag("h2", title), tag("p", _PURGES), question)


async def download(visit: Visit) -> Response:
    """Return the chosen messages as a JSON file, in the form in which the REST API returns peeked messages."""
    visit.require(Operation.PEEK, visit.path)
    of, entity = visit.one_of("of", PLACES, "messages"), find_holder(visit)
    address = Address(entity.path, PLACES[of])
    numbers = _numbers(visit)
    if not numbers:
        return visit.go_to(link("entity/messages", path=entity.path, of=of), NOTHING)
    renderer, catalogue = visit.desk.renderer, visit.desk.catalogue
    async with renderer.page(visit.grant.signer):
        found: list[Received] = []
        for each in numbers:
            peeked = await visit.desk.broker.peek(address, each, 1)
            found += [one for one in peeked if one.message.sequence == each]
            if sum(one.message.size for one in found) > MOST_BYTES:
                break

        def source(received: Received) -> str | None:
            entity = catalogue.entity(received.message.source) if received.message.source is not None else None
            return None if entity is None else entity.path

        def make() -> bytes:
            items, _ = receiving.page([(each, source(each)) for each in found])
            left = len(numbers) - len(items)
            document = {"entity": entity.path, "of": of, "messages": items, "leftOut": left}
            return json.dumps(document, ensure_ascii=False, indent=1).encode()

        size = sum(len(each.message.head) + len(each.body) for each in found)
        content = await renderer.worker.run(visit.grant.signer, size, make)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{entity.path}-{of}")[:100]
    disposition = f'attachment; filename="{name}.json"'
    headers = {**PRIVATE, "content-disposition": disposition}
    return Response(content, 200, headers, "application/json; charset=utf-8")


def _numbers(visit: Visit) -> list[int]:
    """Return the chosen sequence numbers. Raises `BadRequest` if there are more than a page has."""
    chosen = visit.chosen_numbers()
    if len(chosen) > PAGE:
        raise BadRequest(f"{number(len(chosen))} messages were chosen. At most {PAGE} can be.")
    return chosen


def _notice(done: int, chosen: int, what: str) -> str:
    notice = f"{count_in_words(done, 'dead letter')} {what}."
    if done < chosen:
        notice += f" {number(chosen - done)} could not be {what}: a receiver holds them, or they are gone."
    return notice
