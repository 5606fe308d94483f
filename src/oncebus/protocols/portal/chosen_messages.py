"""What can be done with the messages that were chosen in a table: resubmit, discard, download."""

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
from oncebus.protocols.http.paths import LAST_NUMBER, number_in
from oncebus.protocols.portal.entity_head import heading
from oncebus.protocols.portal.fields import button, form_to, hidden
from oncebus.protocols.portal.layout import PRIVATE, SAFETY
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import tag
from oncebus.protocols.portal.messages import MOST_BYTES, PAGE, holder, place_of
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import counted, number

NOTHING = "Nothing was chosen."


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
    entity, of = holder(visit), visit.posted["of"] or "dead-letters"
    sub_queue = place_of(of)
    if sub_queue is SubQueue.MAIN:
        raise BadRequest(f"Messages of '{entity.path}' are not discarded here: only dead letters are.")
    numbers = _numbers(visit)
    address = link("entity/messages", path=entity.path, of=of)
    if not numbers:
        return visit.go_to(address, NOTHING)
    if visit.posted["sure"]:
        outcomes = await visit.desk.broker.discard_dead_letters(Address(entity.path, sub_queue), numbers)
        return visit.go_to(address, _notice(outcomes.count(Outcome.DONE), len(numbers), "discarded"))
    what = counted(len(numbers), "dead letter")
    content = form_to(
        link("entity/discard"),
        visit.seal,
        [hidden("path", entity.path), hidden("of", of), hidden("sure", "yes")],
        [hidden("number", each) for each in numbers],
        button(f"Discard {what}", class_="danger"),
        " ",
        tag("a", "Cancel", href=address, class_="button"),
    )
    text = tag("p", f"Discard {what} of '{entity.path}'? This cannot be undone.", class_="lead")
    return visit.page(f"Discard {what}", await heading(visit, entity, of), text, content)


async def download(visit: Visit) -> Response:
    """Return the chosen messages as a JSON file, in the form in which the REST API returns peeked messages."""
    visit.require(Operation.PEEK, visit.path)
    entity, of = holder(visit), visit.posted["of"] or "messages"
    address = Address(entity.path, place_of(of))
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
    return Response(
        content, 200, {**SAFETY, **PRIVATE, "content-disposition": disposition}, "application/json; charset=utf-8"
    )


def _numbers(visit: Visit) -> list[int]:
    """Return the chosen sequence numbers. Raises `BadRequest` if there are more than a page has."""
    chosen = visit.posted.all("number")
    if len(chosen) > PAGE:
        raise BadRequest(f"{number(len(chosen))} messages were chosen. At most {PAGE} can be.")
    return [number_in({"number": each}, "number", 0, 0, LAST_NUMBER) for each in chosen]


def _notice(done: int, chosen: int, what: str) -> str:
    notice = f"{counted(done, 'dead letter')} {what}."
    if done < chosen:
        notice += f" {number(chosen - done)} could not be {what}: a receiver holds them, or they are gone."
    return notice
