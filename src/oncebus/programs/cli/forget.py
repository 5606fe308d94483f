"""`oncebus forget`: lets an id be sent again, and shows which ids were forgotten."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import click

from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_lines_option
from oncebus.programs.cli.printing import print_line, print_records, visible

_COLUMNS = ("message id", "session or partition key", "forgotten", "original's sequence number", "original sent")


@click.command(
    short_help="Forget an id, so that it can be sent again.", epilog="Example: oncebus forget orders order-17"
)
@click.argument("entity")
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--session-id", metavar="ID", help="The SessionId of the message, if the entity is partitioned.")
@click.option("--partition-key", metavar="KEY", help="The PartitionKey of the message, if the entity is partitioned.")
@click.option("--list", "lists", is_flag=True, help="Show the newest ids that were forgotten, oldest first.")
@json_lines_option
@broker_options
def forget(
    broker: BrokerLocation,
    entity: str,
    message_id: str | None,
    session_id: str | None,
    partition_key: str | None,
    lists: bool,
    as_json: bool,
) -> None:
    """Make the queue or topic ENTITY forget the message id ID: the next message with it is not a duplicate.

    Messages that were sent before are not changed. Azure Service Bus has no such operation.
    """
    if lists != (message_id is None):
        raise click.UsageError("Give either an ID to forget, or --list.")
    if message_id is None:
        with broker.connect(entity=entity) as client:
            found = client.pages(f"/{quote(entity, safe='/')}/$forgets", "forgets")
            empty = f"No ids were forgotten at '{entity}'."
            print_records(found, as_json, _COLUMNS, _row, title=f"Ids forgotten at {entity}", empty=empty)
        return
    given = {"message-id": message_id, "session-id": session_id, "partition-key": partition_key}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    with broker.connect(entity=entity) as client:
        answer = client.ask_json("POST", f"/{quote(entity, safe='/')}/$forgets?{query}")
    if as_json:
        print_line(answer)
        return
    record, name = answer["forget"], visible(message_id)
    if record is None:
        click.echo(f"'{name}' will be forgotten at '{entity}'. The pipeline has not come so far yet.")
    elif record["original"] is None:
        click.echo(f"'{name}' was not remembered at '{entity}'.")
    else:
        original = record["original"]
        click.echo(
            f"'{name}' is forgotten at '{entity}'. It was remembered since {original['time']}, from message "
            f"{original['sequenceNumber']}."
        )


def _row(record: dict[str, Any]) -> list[str]:
    original = record["original"] or {}
    return [
        record["messageId"],
        record["sessionId"] or record["partitionKey"] or "",
        record["time"],
        str(original.get("sequenceNumber", "not remembered")),
        original.get("time") or "",
    ]
