"""The panel beside a table of messages. It shows one message with every property and its body."""

from __future__ import annotations

from oncebus.broker.broker import Received
from oncebus.engine.store import State, SubQueue
from oncebus.model.entities import NO_LIMIT, Catalogue
from oncebus.protocols.http.rendering import Allowance
from oncebus.protocols.portal.contents import body_shown, properties_list
from oncebus.protocols.portal.markup import Content, Markup, foreign, tag
from oncebus.protocols.portal.wording import moment, number, size_in_words, span

STATES = {State.ACTIVE: "Active", State.DEFERRED: "Deferred", State.SCHEDULED: "Scheduled"}
_LONGEST_DESCRIPTION = 1000


def panel(received: Received, catalogue: Catalogue, close: str, actions: Content = None) -> Markup:
    """Return the panel. `close` is the address of the page without it."""
    message, allowance = received.message, Allowance()
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(received, catalogue)]
    # The same address as the page without the panel, so it works without the script.
    back = tag("a", "Close", href=close, class_="button quiet", data_close=True)
    return tag(
        "aside",
        tag("div", tag("h2", f"Message {message.sequence}"), back, class_="title"),
        actions,
        tag("dl", rows, class_="facts plain"),
        properties_list(message.head, allowance),
        tag("h3", "Body"),
        body_shown(received.body, allowance),
        id="panel",
        class_="panel",
        aria_label=f"Message {message.sequence}",
        tabindex="-1",
    )


def no_panel(text: str | None = None) -> Markup:
    """Return the empty place of the panel, or one that says why there is no message."""
    if text is None:
        return tag("aside", id="panel", class_="panel", hidden=True, aria_label="Message")
    return tag("aside", tag("p", text), id="panel", class_="panel", aria_label="Message", tabindex="-1")


def _facts(received: Received, catalogue: Catalogue) -> list[tuple[str, Content]]:
    message = received.message
    facts: list[tuple[str, Content]] = [
        ("MessageId", foreign(message.message_id, class_="foreign id")),
        ("SequenceNumber", str(message.sequence)),
        ("EnqueuedTime", moment(message.enqueued)),
        ("DeliveryCount", number(message.deliveries)),
        ("Size", size_in_words(message.size)),
    ]
    if message.sub_queue == SubQueue.MAIN or message.state is not State.ACTIVE:
        facts.insert(2, ("State", STATES[message.state]))
    if message.enqueued_sequence != message.sequence:
        facts.append(("EnqueuedSequenceNumber", str(message.enqueued_sequence)))
    if message.session is not None:
        facts.append(("SessionId", foreign(message.session)))
    if message.partition_key is not None:
        facts.append(("PartitionKey", foreign(message.partition_key)))
    if message.scheduled is not None:
        facts.append(("ScheduledEnqueueTime", moment(message.scheduled)))
    if message.locked_until is not None:
        facts.append(("LockedUntil", moment(message.locked_until)))
    if message.expires is not None and message.expires < message.enqueued + NO_LIMIT:
        facts.append(("ExpiresAt", [moment(message.expires), f", after {span(message.expires - message.enqueued)}"]))
    if message.reason is not None:
        facts.append(("DeadLetterReason", foreign(message.reason)))
    if message.description is not None:
        facts.append(("DeadLetterErrorDescription", foreign(message.description[:_LONGEST_DESCRIPTION])))
    source = catalogue.entity(message.source) if message.source is not None else None
    if source is not None:
        facts.append(("DeadLetterSource", source.path))
    if message.hops:
        facts.append(("Forwarded", f"{message.hops} times"))
    return facts
