"""The official client for JavaScript, on Node's own test runner. Each file of scenarios is one test here."""

from __future__ import annotations

from .javascript import play
from .served import Served
from .together import together

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@together
def test_javascript_sends_in_every_form(served: Served) -> None:
    play("sending.mjs", served, plain=7)


@together
def test_javascript_sends_in_every_form_over_websockets(served: Served) -> None:
    play("sending.mjs", served, over_websockets=True, plain=7)


@together
def test_javascript_receives_and_settles_in_every_way(served: Served) -> None:
    play("receiving.mjs", served, plain=8, short=2, twice=1)


@together
def test_javascript_holds_sessions(served: Served) -> None:
    play("sessions.mjs", served, sessions=3, short_sessions=3)


@together
def test_javascript_holds_sessions_over_websockets(served: Served) -> None:
    play("sessions.mjs", served, over_websockets=True, sessions=3, short_sessions=3)


@together
def test_javascript_receives_from_subscriptions_and_manages_their_rules(served: Served) -> None:
    play("topics.mjs", served, topic=2)


@together
def test_javascript_finds_what_it_expects_of_the_service(served: Served) -> None:
    play("faithful.mjs", served, plain=4, sessions=1, topic=1)


@together
def test_javascript_reports_refusals(served: Served) -> None:
    play("refusals.mjs", served, plain=5, sessions=2, disabled=1, send_disabled=1, receive_disabled=1)


@together
def test_javascript_repeats_ids_and_each_is_delivered_once(served: Served) -> None:
    entities = play(
        "duplicates.mjs",
        served,
        detecting=2,
        detecting_topic=1,
        detecting_sessions=1,
        detecting_partitioned=1,
    )
    texts, typed = entities["detecting"]
    assert served.dropped(texts, 7) == ["12345.2017/Payment"] * 7
    assert served.dropped(typed, 5) == ["17", UUID, "text", "17", UUID]
    assert served.dropped(entities["detecting-topic"][0], 7) == ["a"] * 7
    assert served.dropped(entities["detecting-sessions"][0], 7) == ["a"] * 7
    assert sorted(served.dropped(entities["detecting-partitioned"][0], 9)) == ["a"] * 7 + ["b"] * 2
