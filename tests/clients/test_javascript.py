"""The official client for JavaScript, on Node's own test runner: a file of scenarios is one test here."""

from __future__ import annotations

from oncebus.access import connection_string

from . import javascript
from .served import Served
from .together import together


def run(served: Served, name: str, **kinds: int) -> None:
    """Run a file with so many entities of each kind."""
    entities = {
        kind.replace("_", "-"): served.pool.take(kind.replace("_", "-"), count) for kind, count in kinds.items()
    }
    https = connection_string("localhost", served.https_port, served.root, emulator=False)
    print(javascript.run_scenarios(name, served, entities, ADMINISTRATION=https))


@together
def test_javascript_sends_in_every_form(served: Served) -> None:
    run(served, "sending.mjs", plain=6)


@together
def test_javascript_receives_and_settles_in_every_way(served: Served) -> None:
    run(served, "receiving.mjs", plain=8, short=2, twice=1)


@together
def test_javascript_holds_sessions(served: Served) -> None:
    run(served, "sessions.mjs", sessions=3, short_sessions=3)


@together
def test_javascript_receives_from_subscriptions_and_makes_their_rules(served: Served) -> None:
    run(served, "topics.mjs", topic=2)


@together
def test_javascript_tells_what_is_refused(served: Served) -> None:
    run(served, "refusals.mjs", plain=5, sessions=2, disabled=1, send_disabled=1, receive_disabled=1)


@together
def test_javascript_repeats_ids_and_each_is_delivered_once(served: Served) -> None:
    run(
        served,
        "duplicates.mjs",
        detecting=2,
        detecting_topic=1,
        detecting_sessions=1,
        detecting_partitioned=1,
    )
