"""The part of the page of dropped duplicates that makes an entity forget an id, and shows what was forgotten."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.engine.store import Forget
from oncebus.model.access import Operation
from oncebus.model.entities import Queue, Topic
from oncebus.model.entities.detection_keys import BODY, property_of
from oncebus.protocols.portal.forms import Form, button, check_box, hidden, text_field
from oncebus.protocols.portal.layout import section_head
from oncebus.protocols.portal.links import link
from oncebus.protocols.portal.markup import Content, Markup, foreign, tag
from oncebus.protocols.portal.tables import Column, TableRow, table
from oncebus.protocols.portal.visits import Visit
from oncebus.protocols.portal.wording import ago

SHOWN = 20


async def forget(visit: Visit) -> Response:
    """Forget an id if the visitor has confirmed it."""
    visit.require(Operation.FORGET, visit.path)
    entity, identity = visit.entity(), visit.form["message-id"]
    address = link("entity/duplicates", path=entity.path, message_id=identity)
    if not visit.form["sure"]:
        return visit.go_to(address, "Nothing was forgotten. Check the box to confirm.")
    session, partition_key = visit.form["session-id"] or None, visit.form["partition-key"] or None
    done = await visit.desk.broker.forget(entity.path, identity, session=session, partition_key=partition_key)
    if done is None:
        return visit.go_to(address, "The id will be forgotten. The pipeline has not come so far yet.")
    if done.original_sequence is None:
        return visit.go_to(address, "The id was not remembered. There was nothing to forget.")
    notice = f"The id is forgotten. It was remembered from message {done.original_sequence}."
    return visit.go_to(address, notice)


def forget_form(visit: Visit, entity: Queue | Topic, identity: str) -> Markup | None:
    """Return the form to forget an id; None if the visitor may not, or if the entity remembers no ids.

    An entity that compares bodies cannot forget. One that compares a property needs the value of that property, which
    the MessageId does not tell.
    """
    if entity.window is None or entity.detection_key == BODY or not visit.may(Operation.FORGET, entity.path):
        return None
    form = Form()
    keys: list[Content] = [hidden("message-id", identity)]
    summary = "Let this id be sent again"
    if entity.detection_key is not None:
        name = property_of(entity.detection_key)
        keys = [text_field(form, "message-id", f"Value of the property {name}")]
        summary = "Let an id be sent again"
    if entity.enable_partitioning:
        keys += [
            text_field(form, "session-id", "SessionId", hint="On a partitioned entity it is part of the key."),
            text_field(form, "partition-key", "PartitionKey", hint="The same, for a message without a session."),
        ]
    return tag(
        "details",
        tag("summary", summary),
        visit.form_to(
            "entity/forget",
            tag("p", "The next message with this id is not a duplicate, even within the window.", class_="hint"),
            keys,
            check_box(form, "sure", "I understand that a repeated message may then be delivered twice."),
            button("Forget the id", class_="danger"),
            class_="wide",
        ),
    )


async def forgets_table(visit: Visit, entity: Queue | Topic) -> Markup | None:
    """Return the table of the newest forgets; None if there are none."""
    forgets = await visit.desk.broker.newest_forgets(entity.path, SHOWN)
    if not forgets:
        return None
    now = visit.now
    columns = [Column("MessageId"), Column("Forgotten"), Column("Original"), Column("Sent")]
    rows = [_row(each, now) for each in forgets]
    return tag("section", section_head("Forgotten ids"), table("Forgotten ids", columns, rows))


def _row(forget: Forget, now: int) -> TableRow:
    sent: Content = "–"
    original = "was not remembered"
    if forget.original_sequence is not None:
        original = f"number {forget.original_sequence}"
        sent = ago(forget.original_time, now) if forget.original_time is not None else "unknown"
    return TableRow(foreign(forget.message_id, class_="foreign id"), [ago(forget.time, now), original, sent])
