"""`oncebus send`, `receive` and `peek`: work with messages over HTTP.

`oncebus.protocols.http` formats properties and times for HTTP. Importing it takes most of a second, so only functions
that need it import it.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

from oncebus.programs.cli.client import TIMEOUT_SECONDS, Answer, Client, NotAnswered
from oncebus.programs.cli.errors import RequestError
from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import DURATION, json_lines_option, json_option, moment_in
from oncebus.programs.cli.paths import at_entity, below, no_such_target
from oncebus.programs.cli.printing import count_text, print_line, print_records, shorten, visible
from oncebus.values.durations import MINUTE, SECOND

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
MESSAGES_PER_BATCH = 100
LARGEST_BATCH = 1 << 20
"""The maximum size of a request, in bytes of JSON. A larger message is sent alone."""
NUMBER = "{n}"
_LONGEST_WAIT = 50.0
_DEAD_LETTERS = "/$DeadLetterQueue"
_REASON = ("DeadLetterReason", "DeadLetterErrorDescription")
_TIMES = ("EnqueuedTimeUtc", "DeliveryCount")
_TITLES = {
    "State": "state",
    "DeadLetterReason": "reason",
    "DeadLetterErrorDescription": "description",
    "EnqueuedTimeUtc": "enqueued",
    "DeliveryCount": "deliveries",
}

_TEXTS = {
    "session_id": ("SessionId", "Session of the message."),
    "partition_key": ("PartitionKey", "Partition key of the message."),
    "label": ("Label", "Subject of the message."),
    "correlation_id": (
        "CorrelationId",
        "Id of a related message, for example of the request that this message answers.",
    ),
    "content_type": ("ContentType", "Type of the body, like application/json."),
    "to": ("To", "Address of the final receiver."),
    "reply_to": ("ReplyTo", "Address for replies."),
    "reply_to_session_id": ("ReplyToSessionId", "Session for replies."),
}


def _text_options(command: Any) -> Any:
    for name, (_, text) in reversed(_TEXTS.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)(command)
    return command


@click.command(
    short_help="Send messages.",
    epilog="Example: oncebus send orders 'two pounds of tea' --message-id 12345 --property weight=2",
)
@click.argument("entity")
@click.argument("body")
@click.option(
    "--message-id", metavar="ID", help=f"Id of the message. With --count, {NUMBER} stands for 1, 2, 3 and so on."
)
@_text_options
@click.option(
    "--property", "-p", "properties", multiple=True, metavar="NAME=VALUE", help="Application property; repeatable."
)
@click.option("--time-to-live", type=DURATION, metavar="DURATION", help="Time after which the message expires.")
@click.option("--scheduled", metavar="TIME", help="When to deliver the message: a time, or a duration from now.")
@click.option("--count", default=1, type=click.IntRange(1), metavar="COUNT", help="How many times to send the message.")
@json_option
@broker_options
def send(
    broker: BrokerLocation,
    entity: str,
    body: str,
    message_id: str | None,
    properties: Sequence[str],
    time_to_live: str | None,
    scheduled: str | None,
    count: int,
    as_json: bool,
    **texts: str | None,
) -> None:
    """Send BODY to the queue or topic ENTITY; "-" is standard input.

    The VALUE of a --property becomes a number, true or false if it looks like one. In quotes it is always text:
    'size="2"'.
    """
    content = sys.stdin.buffer.read() if body == "-" else body.encode()
    system = {name: texts[each] for each, (name, _) in _TEXTS.items() if texts[each] is not None}
    if time_to_live is not None:
        system["TimeToLiveTimeSpan"] = time_to_live
    if scheduled is not None:
        system["ScheduledEnqueueTimeUtc"] = moment_in(scheduled, "--scheduled")
    own = dict(_property(text) for text in properties)
    ids = (None if message_id is None else message_id.replace(NUMBER, str(at)) for at in range(1, count + 1))
    items = (_item(content, system if each is None else {**system, "MessageId": each}, own) for each in ids)
    with broker.connect() as client:
        for batch in _batches(items):
            try:
                client.ask("POST", below(entity, "messages"), batch, {"Content-Type": BATCH_TYPE})
            except NotAnswered as error:
                raise no_such_target(client, entity, error) from None
    if as_json:
        print_line({"entity": entity, "sent": count})
    else:
        click.echo(f"{count_text(count, 'message')} sent to '{entity}'.")


@click.command(
    short_help="Receive messages and remove them.", epilog="Example: oncebus receive orders --count 10 --wait 0.5"
)
@click.argument("entity")
@click.option(
    "--count",
    default=1,
    type=click.IntRange(1),
    metavar="COUNT",
    show_default=True,
    help="Receive at most this many.",
)
@click.option(
    "--wait",
    default=2.0,
    type=click.FloatRange(0),
    metavar="SECONDS",
    show_default=True,
    help="How long to wait for each message.",
)
@click.option(
    "--peek-lock/--receive-and-delete",
    "is_held",
    default=True,
    help="Lock each message, print it and complete it (the default); or delete it as it is received.",
)
@click.option(
    "--abandon", is_flag=True, help=("Abandon the messages after printing them. This counts as a delivery attempt.")
)
@click.option("--dead-letters", is_flag=True, help="Receive the entity's dead letters, and remove them.")
@json_lines_option
@broker_options
def receive(
    broker: BrokerLocation,
    entity: str,
    count: int,
    wait: float,
    is_held: bool,
    abandon: bool,
    dead_letters: bool,
    as_json: bool,
) -> None:
    """Receive messages from the queue ENTITY, or from the subscription TOPIC/NAME, and remove them.

    Prints the sequence number, id and body of each message, and the reason of a dead letter. To look at messages
    without removing them, use `oncebus peek`.
    """
    if abandon and not is_held:
        raise click.UsageError("--abandon needs --peek-lock, because a deleted message cannot be put back.")
    taken = 0

    def next_from(path: str) -> Answer | None:
        place = below(path + (_DEAD_LETTERS if dead_letters else ""), "messages/head")
        return _next(client, place, is_held, wait)

    with broker.connect(30 * MINUTE + count * round(wait) * SECOND) as client:
        held = []
        entity, answer = at_entity(entity, next_from)
        while answer is not None:
            taken += 1
            _print_message(_message_in(answer, with_properties=as_json or dead_letters), as_json)
            location = urlsplit(answer.headers["location"]).path if is_held else ""
            if abandon:
                # Abandon at the end: at once, the same message would come next.
                held.append(location)
            elif is_held:
                client.ask("DELETE", location)
            answer = next_from(entity) if taken < count else None
        for location in held:
            client.ask("PUT", location)
        if not as_json:
            what = "dead letter" if dead_letters else "message"
            if not taken:
                click.echo(f"No {what} arrived from '{entity}'.{client.readiness_note()}")
            elif not abandon:
                # On standard error: scripts read the messages.
                click.echo(f"{count_text(taken, what)} removed from '{entity}'.", err=True)


@click.command(
    short_help="Look at messages without receiving them.", epilog="Example: oncebus peek orders --count 20 --json"
)
@click.argument("entity")
@click.option(
    "--from", "start", default=0, type=click.IntRange(0), metavar="NUMBER", help="Start at this sequence number."
)
@click.option(
    "--count", default=10, type=click.IntRange(1), metavar="COUNT", show_default=True, help="Show at most this many."
)
@click.option("--session-id", metavar="TEXT", help="Show only messages of this session.")
@click.option("--dead-letters", is_flag=True, help="Show the entity's dead letters.")
@json_lines_option
@broker_options
def peek(
    broker: BrokerLocation,
    entity: str,
    start: int,
    count: int,
    session_id: str | None,
    dead_letters: bool,
    as_json: bool,
) -> None:
    """Show the messages of the queue ENTITY, or of the subscription TOPIC/NAME.

    Shows messages in all states, including locked, scheduled and deferred ones, and the reasons of dead letters. It
    changes nothing.
    """

    def peek_at(path: str) -> list[dict[str, Any]]:
        place = below(path + (_DEAD_LETTERS if dead_letters else ""), "$messages")
        return list(_peek_pages(client, place, start, count, session_id))

    with broker.connect() as client:
        entity, found = at_entity(entity, peek_at)
        note = "" if found or as_json else client.readiness_note()
    names = (*_REASON, *_TIMES) if dead_letters else ("State", *_TIMES)
    columns = ("sequence number", "message id", *(_TITLES[name] for name in names), "body")
    empty = f"There are no {'dead letters' if dead_letters else 'messages'} in '{entity}'.{note}"
    print_records(found, as_json, columns, lambda message: _row(message, names), empty=empty)


def _property(text: str) -> tuple[str, object]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise RequestError(f"Option --property has value '{text}'. Write it like name=value.")
    from oncebus.protocols.http.properties import value_of

    return name, _in_json(value_of(name, value), value)


def _in_json(value: object, text: str) -> object:
    """Return the value if JSON has its type, else `text`. JSON has no times, for example."""
    return value if type(value) in (str, bool, int, float) else text


def _item(content: bytes, system: dict[str, Any], own: dict[str, object]) -> bytes:
    try:
        item: dict[str, object] = {"Body": content.decode()}
    except UnicodeDecodeError:
        item = {"Body": base64.b64encode(content).decode(), "IsBodyBase64": True}
    return json.dumps({**item, "BrokerProperties": system, "UserProperties": own}).encode()


def _batches(items: Iterator[bytes]) -> Iterator[bytes]:
    """Join the items into JSON lists, and yield each list. A list stays within the limits of one request."""
    batch: list[bytes] = []
    for item in items:
        if batch and (len(batch) == MESSAGES_PER_BATCH or sum(map(len, batch)) + len(item) > LARGEST_BATCH):
            yield b"[" + b",".join(batch) + b"]"
            batch = []
        batch.append(item)
    yield b"[" + b",".join(batch) + b"]"


def _next(client: Client, path: str, is_held: bool, wait: float) -> Answer | None:
    """Receive the next message; return None if none arrives in time.

    Repeats the request if the broker stops waiting earlier.
    """
    left = wait
    while True:
        seconds = min(left, _LONGEST_WAIT)
        answer = client.ask(
            "POST" if is_held else "DELETE", f"{path}?timeout={seconds:g}", timeout=TIMEOUT_SECONDS + seconds
        )
        left -= seconds
        if answer.status != 204:
            return answer
        if left <= 0:
            return None


def _message_in(answer: Answer, *, with_properties: bool) -> dict[str, Any]:
    """Return a received message in the format of a peeked one.

    Decoding application properties is slow, so it is optional.
    """
    item: dict[str, Any] = {"BrokerProperties": json.loads(answer.headers.get("brokerproperties", "{}"))}
    try:
        item["Body"] = answer.body.decode()
    except UnicodeDecodeError:
        item |= {"Body": base64.b64encode(answer.body).decode(), "IsBodyBase64": True}
    return {**item, "UserProperties": _properties_in(answer.headers)} if with_properties else item


def _properties_in(headers: Mapping[str, str]) -> dict[str, object]:
    from oncebus.protocols.http.properties import is_property, text_of, value_of

    texts = {name: text_of(value.encode("latin-1")) for name, value in headers.items() if is_property(name)}
    return {name: _in_json(value_of(name, text), text) for name, text in texts.items()}


def _peek_pages(client: Client, path: str, start: int, count: int, session: str | None) -> Iterator[dict[str, Any]]:
    left = count
    while left > 0:
        query = {"from": start, "count": min(left, MESSAGES_PER_BATCH)} | ({"session": session} if session else {})
        page = client.ask_json("GET", f"{path}?{urlencode(query)}")
        yield from page["messages"]
        left -= len(page["messages"])
        if page["next"] is None:
            return
        start = page["next"]


def _print_message(message: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_line(message)
        return
    system, own = message["BrokerProperties"], message.get("UserProperties", {})
    words = [str(system.get("SequenceNumber")), str(system.get("MessageId")), message["Body"]]
    # The names of headers are in lower case.
    why = [str(own[name.lower()]) for name in _REASON if own.get(name.lower())]
    click.echo("  ".join(map(visible, words)) + (f"  [{visible(': '.join(why))}]" if why else ""))


def _row(message: dict[str, Any], names: Sequence[str]) -> list[str]:
    known = message.get("UserProperties", {}) | message["BrokerProperties"]
    return [*(str(known.get(name, "")) for name in ("SequenceNumber", "MessageId", *names)), shorten(message["Body"])]
