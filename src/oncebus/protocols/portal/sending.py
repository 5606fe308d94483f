"""The page that sends a test message and shows what happened to it."""

from __future__ import annotations

from starlette.responses import Response

from oncebus.broker.addresses import sendable
from oncebus.broker.sending import Incoming
from oncebus.model.access import Operation
from oncebus.model.entities import Queue, Topic
from oncebus.protocols.http.broker_properties import BrokerProperties, checked_text
from oncebus.protocols.portal.entity_head import entity_page
from oncebus.protocols.portal.forms import Form, area, button, list_errors, text_field
from oncebus.protocols.portal.markup import Content, Markup, tag
from oncebus.protocols.portal.rules import LINES, PROPERTIES, lines_of
from oncebus.protocols.portal.visits import Visit, status_of
from oncebus.protocols.portal.wording import moment
from oncebus.values.errors import OncebusError

_TEXTS = {"message-id": "MessageId", "session": "SessionId", "partition-key": "PartitionKey", "label": "Label"}
_ERROR_FIELDS = {PROPERTIES: PROPERTIES, **{title: name for name, title in _TEXTS.items()}}
"""The fields of the form, by the fields that errors name."""


async def show(visit: Visit) -> Response:
    """Return the page with the empty form."""
    visit.require(Operation.SEND, visit.path)
    return await _page(visit, _target(visit), Form())


async def send(visit: Visit) -> Response:
    """Send the message. The form keeps its values, because sending again is the purpose of this page."""
    visit.require(Operation.SEND, visit.path)
    target, form = _target(visit), visit.form
    began = visit.desk.broker.clock.now()
    try:
        message = _message(form)
        [number] = await visit.desk.broker.send(target.path, [message])
    except OncebusError as error:
        form.add_error(error, _ERROR_FIELDS)
        return await _page(visit, target, form, status=status_of(error))
    return await _page(visit, target, form, await _outcome(visit, target, number, began))


def _target(visit: Visit) -> Queue | Topic:
    return sendable(visit.desk.catalogue, visit.path)


def _message(form: Form) -> Incoming:
    given = {name: checked_text(form[name], title) for name, title in _TEXTS.items() if form[name]}
    fields = {"message_id": "message-id", "group_id": "session", "subject": "label"}
    texts = {field: given[name] for field, name in fields.items() if name in given}
    properties = BrokerProperties(texts, given.get("partition-key"))
    own, body = lines_of(form[PROPERTIES]), form["body"].encode()
    return properties.make_message(form["content-type"].strip() or None, own, body)


async def _outcome(visit: Visit, target: Queue | Topic, number: int, began: int) -> Markup:
    """Return a notice that says what happened to the message, as far as the key permits."""
    told: list[Content] = ["Sent as number ", tag("strong", str(number)), "."]
    identity = visit.form["message-id"]
    if target.window is None or not identity or not visit.may(Operation.READ_DROPS, target.path):
        return tag("p", told, class_="notice", role="status")
    drops = await visit.desk.broker.duplicates(target.path, message_id=identity, since=began)
    mine = next((drop for drop in drops if drop.sequence == number), None)
    if mine is None:
        is_seen = visit.desk.broker.pipeline.has_passed(target)
        told.append(" It was not a duplicate." if is_seen else " It is still in the pipeline.")
        return tag("p", told, class_="notice", role="status")
    told += [" It was dropped as a duplicate of "]
    if mine.original_sequence is not None and mine.original_time is not None:
        told += [
            "number ",
            tag("strong", str(mine.original_sequence)),
            ", sent at ",
            moment(mine.original_time),
            ".",
        ]
        # An update may have changed the window: then the time is not known.
        if target.updated_at <= mine.original_time:
            told += [" Its id is remembered until ", moment(mine.original_time + target.window), "."]
    else:
        told.append("an earlier message.")
    return tag("p", told, class_="notice dropped", role="status")


async def _page(
    visit: Visit, target: Queue | Topic, form: Form, outcome: Content = None, status: int = 200
) -> Response:
    detects = target.window is not None
    hint = "Send the same id twice to see the second message dropped." if detects else "A random one if empty."
    needs_session = isinstance(target, Queue) and target.requires_session
    content = visit.form_to(
        "entity/send",
        list_errors(form, "Not sent"),
        text_field(form, "message-id", "MessageId", hint=hint),
        text_field(form, "session", "SessionId", required=needs_session),
        text_field(form, "partition-key", "PartitionKey") if target.enable_partitioning else None,
        text_field(form, "label", "Label (subject)"),
        area(form, "body", "Body", rows=5),
        text_field(form, "content-type", "Content type", hint="Such as text/plain or application/json"),
        area(form, PROPERTIES, "Own properties", hint=LINES, rows=3),
        button("Send", class_="main"),
        class_="wide",
    )
    parts = [tag("h2", "Send a test message", class_="unseen"), outcome, content]
    return await entity_page(visit, target, "send", f"Send to {target.name}", parts, status=status)
