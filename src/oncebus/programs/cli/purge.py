"""`oncebus purge`: deletes the messages of a queue or subscription."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import click

from oncebus.programs.cli.location import BrokerLocation, broker_options
from oncebus.programs.cli.options import json_option
from oncebus.programs.cli.printing import count_text, print_line

_TIMEOUT_SECONDS = 120.0


@click.command(
    short_help="Delete the messages of a queue or subscription.",
    epilog="Example: oncebus purge orders --dead-letters",
)
@click.argument("entity")
@click.option("--dead-letters", is_flag=True, help="Delete the entity's dead letters instead of its messages.")
@json_option
@broker_options
def purge(broker: BrokerLocation, entity: str, dead_letters: bool, as_json: bool) -> None:
    """Delete all active messages that are now in the queue ENTITY, or in a subscription: TOPIC/Subscriptions/NAME.

    Locked, deferred and scheduled messages stay, and so do messages that arrive meanwhile. The ids of deleted messages
    stay remembered: sending one again within the window is a duplicate. This cannot be undone.
    """
    path = f"/{quote(entity, safe='/')}{'/$DeadLetterQueue' if dead_letters else ''}/$messages"
    deleted, query = 0, ""
    with broker.connect() as client:
        while True:
            answer = client.ask_json("DELETE", path + query, timeout=_TIMEOUT_SECONDS)
            if not {"deleted", "left", "before", "more"} <= answer.keys():
                raise client.not_a_broker()
            deleted += answer["deleted"]
            if not answer["more"]:
                break
            query = "?" + urlencode({"before": answer["before"]})
    if as_json:
        print_line({"entity": entity, "deleted": deleted, "left": answer["left"]})
        return
    what = "dead letter" if dead_letters else "message"
    left = f" Left: {count_text(answer['left'], what)}." if answer["left"] else ""
    click.echo(f"{count_text(deleted, what)} deleted from '{entity}'.{left}")
