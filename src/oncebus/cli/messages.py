"""`oncebus send`, `receive` and `peek`: messages, over HTTP.

How HTTP writes a property or a time is `oncebus.http`'s to say, which takes most of a second to load: it is loaded
where it is needed.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from oncebus.broker.clock import wall_time
from oncebus.cli.client import TIMEOUT_SECONDS, Answer, Client
from oncebus.cli.durations import DURATION
from oncebus.cli.errors import RequestError
from oncebus.cli.printing import print_line, print_table, shortened, visible
from oncebus.cli.reaching import Reach, broker_options
from oncebus.durations import MINUTE, SECOND, NotADuration
from oncebus.entities.timespans import FORMS, duration_in

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
MESSAGES_A_BATCH = 100
LARGEST_BATCH = 1 << 20
"""Bytes of JSON that go out at once; a message that is larger goes alone."""
NUMBER = "{n}"
_LONGEST_WAIT = 50.0
_DEAD_LETTERS = "/$DeadLetterQueue"

_TEXTS = {
    "session_id": ("SessionId", "Session that it belongs to."),
    "partition_key": ("PartitionKey", "Partition key."),
    "label": ("Label", "Subject."),
    "correlation_id": ("CorrelationId", "What it is an answer to."),
    "content_type": ("ContentType", "Type of the body, like application/json."),
    "to": ("To", "Address that it is for."),
    "reply_to": ("ReplyTo", "Address to answer to."),
    "reply_to_session_id": ("ReplyToSessionId", "Session to answer to."),
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
@click.option("--message-id", metavar="ID", help=f"Its id; with --count, {NUMBER} in it is the message's number.")
@_text_options
@click.option(
    "--property", "-p", "properties", multiple=True, metavar="NAME=VALUE", help="A property of its own; repeatable."
)
@click.option("--time-to-live", type=DURATION, metavar="DURATION", help="How long it lives.")
@click.option("--scheduled", metavar="TIME", help="When it is to arrive: a time, or a duration from now.")
@click.option("--count", default=1, type=click.IntRange(1), metavar="COUNT", help="How many times it is sent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@broker_options
def send(
    reach: Reach,
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

    A value of --property is a number, true, false, or else text; in quotes it is always text: 'size="2"'.
    """
    content = sys.stdin.buffer.read() if body == "-" else body.encode()
    told = {name: texts[each] for each, (name, _) in _TEXTS.items() if texts[each] is not None}
    if time_to_live is not None:
        told["TimeToLiveTimeSpan"] = time_to_live
    if scheduled is not None:
        told["ScheduledEnqueueTimeUtc"] = _moment(scheduled)
    own = dict(_property(text) for text in properties)
    ids = (None if message_id is None else message_id.replace(NUMBER, str(at)) for at in range(1, count + 1))
    items = (_item(content, told if each is None else {**told, "MessageId": each}, own) for each in ids)
    with reach.connected() as client:
        for batch in _batches(items):
            client.ask("POST", _path(entity, "messages"), batch, {"Content-Type": BATCH_TYPE})
    if as_json:
        print_line({"entity": entity, "accepted": count})
    else:
        click.echo(f"{count} message{'' if count == 1 else 's'} accepted by '{entity}'.")


@click.command(short_help="Receive messages.", epilog="Example: oncebus receive orders --count 10 --wait 0.5")
@click.argument("entity")
@click.option("--count", default=1, type=click.IntRange(1), metavar="COUNT", show_default=True, help="At most so many.")
@click.option(
    "--wait", default=2.0, type=click.FloatRange(0), metavar="SECONDS", show_default=True, help="How long for each."
)
@click.option(
    "--peek-lock/--receive-and-delete",
    "is_held",
    default=True,
    help="Hold each message until it is printed, then complete it (unless told otherwise); or delete it at once.",
)
@click.option("--abandon", is_flag=True, help="Put each message back once it is printed; the attempt counts.")
@click.option("--dead-letters", is_flag=True, help="Its dead letters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@broker_options
def receive(
    reach: Reach, entity: str, count: int, wait: float, is_held: bool, abandon: bool, dead_letters: bool, as_json: bool
) -> None:
    """Receive messages from the queue ENTITY, or from a subscription: TOPIC/Subscriptions/NAME.

    Prints number, id and body of each.
    """
    if abandon and not is_held:
        raise click.UsageError("--abandon needs --peek-lock: what is deleted cannot be put back.")
    path = _path(entity + (_DEAD_LETTERS if dead_letters else ""), "messages/head")
    taken = 0
    with reach.connected(30 * MINUTE + count * round(wait) * SECOND) as client:
        held = []
        while taken < count and (answer := _next(client, path, is_held, wait)) is not None:
            taken += 1
            _print_message(_received(answer, with_properties=as_json), as_json)
            if not is_held:
                continue
            location = urlsplit(answer.headers["location"]).path
            if abandon:
                # Not at once: it would be the next to come.
                held.append(location)
            else:
                client.ask("DELETE", location)
        for location in held:
            client.ask("PUT", location)
    if not taken and not as_json:
        click.echo(f"No message came from '{entity}'.")


@click.command(
    short_help="Look at messages without receiving them.", epilog="Example: oncebus peek orders --count 20 --json"
)
@click.argument("entity")
@click.option("--from", "start", default=0, type=click.IntRange(0), metavar="NUMBER", help="From this number on.")
@click.option(
    "--count", default=10, type=click.IntRange(1), metavar="COUNT", show_default=True, help="At most so many."
)
@click.option("--session-id", metavar="TEXT", help="Only of this session.")
@click.option("--dead-letters", is_flag=True, help="Its dead letters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@broker_options
def peek(
    reach: Reach, entity: str, start: int, count: int, session_id: str | None, dead_letters: bool, as_json: bool
) -> None:
    """Look at the messages of the queue ENTITY, or of a subscription: TOPIC/Subscriptions/NAME. In any state."""
    path = _path(entity + (_DEAD_LETTERS if dead_letters else ""), "$messages")
    with reach.connected() as client:
        found = list(_peeked(client, path, start, count, session_id))
    if as_json:
        for message in found:
            print_line(message)
    elif not found:
        click.echo(f"There are no messages in '{entity}'.")
    else:
        print_table(None, ("number", "message id", "state", "enqueued", "deliveries", "body"), map(_row, found))


def _path(entity: str, below: str) -> str:
    return f"/{quote(entity.strip('/'), safe='/$~')}/{below}"


def _moment(text: str) -> str:
    """The time that a text means, in the form that is sent."""
    from oncebus.http.times import iso8601, parse_time

    if parse_time(text) is not None:
        return text
    try:
        return iso8601(wall_time() + duration_in(text, "option --scheduled"))
    except NotADuration:
        raise RequestError(
            f"Option --scheduled has value '{text}'. Not a time like 2026-01-31T08:30:00Z, nor a duration. {FORMS}"
        ) from None


def _property(text: str) -> tuple[str, object]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise RequestError(f"Option --property has value '{text}'. Write it like name=value.")
    from oncebus.http.properties import value_of

    return name, _in_json(value_of(name, value), value)


def _in_json(value: object, text: str) -> object:
    """A value that JSON has, or its text: there are no times in it."""
    return value if type(value) in (str, bool, int, float) else text


def _item(content: bytes, told: dict[str, Any], own: dict[str, object]) -> bytes:
    try:
        item: dict[str, object] = {"Body": content.decode()}
    except UnicodeDecodeError:
        item = {"Body": base64.b64encode(content).decode(), "IsBodyBase64": True}
    return json.dumps({**item, "BrokerProperties": told, "UserProperties": own}).encode()


def _batches(items: Iterator[bytes]) -> Iterator[bytes]:
    """JSON lists of items, none too long."""
    batch: list[bytes] = []
    for item in items:
        if batch and (len(batch) == MESSAGES_A_BATCH or sum(map(len, batch)) + len(item) > LARGEST_BATCH):
            yield b"[" + b",".join(batch) + b"]"
            batch = []
        batch.append(item)
    yield b"[" + b",".join(batch) + b"]"


def _next(client: Client, path: str, is_held: bool, wait: float) -> Answer | None:
    """The next message; None if none comes in time. Longer than the broker waits, it is asked again."""
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


def _received(answer: Answer, *, with_properties: bool) -> dict[str, Any]:
    """A message in the form in which it is peeked at; without its own properties where nobody asks for them."""
    told: dict[str, Any] = json.loads(answer.headers.get("brokerproperties", "{}"))
    item: dict[str, Any] = {"BrokerProperties": told}
    try:
        item["Body"] = answer.body.decode()
    except UnicodeDecodeError:
        item |= {"Body": base64.b64encode(answer.body).decode(), "IsBodyBase64": True}
    return {**item, "UserProperties": _properties_in(answer.headers)} if with_properties else item


def _properties_in(headers: Mapping[str, str]) -> dict[str, object]:
    from oncebus.http.properties import is_property, text_of, value_of

    texts = {name: text_of(value.encode("latin-1")) for name, value in headers.items() if is_property(name)}
    return {name: _in_json(value_of(name, text), text) for name, text in texts.items()}


def _peeked(client: Client, path: str, start: int, count: int, session: str | None) -> Iterator[dict[str, Any]]:
    left = count
    while left > 0:
        query = {"from": start, "count": min(left, MESSAGES_A_BATCH)} | ({"session": session} if session else {})
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
    told = message["BrokerProperties"]
    click.echo(f"{told.get('SequenceNumber')}  {visible(str(told.get('MessageId')))}  {visible(message['Body'])}")


def _row(message: dict[str, Any]) -> list[str]:
    told = message["BrokerProperties"]
    names = ("SequenceNumber", "MessageId", "State", "EnqueuedTimeUtc", "DeliveryCount")
    return [*(str(told.get(name, "")) for name in names), shortened(message["Body"])]
