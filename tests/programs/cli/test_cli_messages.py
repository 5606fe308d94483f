"""`oncebus send`, `receive`, `peek`, `top` and `quarantine` against a broker over HTTP."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncebus.amqp.head import Properties
from oncebus.amqp.message import encode_message
from oncebus.amqp.types import Timestamp
from oncebus.broker import maintenance
from oncebus.broker.addresses import parse_address
from oncebus.broker.broker import Received
from oncebus.broker.sending import Incoming
from oncebus.engine.store import Mode
from oncebus.model.entities import Rule, SqlFilter, Subscription
from oncebus.programs.cli.duplicates import after_original
from oncebus.programs.cli.figures import TOTALS, Load, loads_of, rates_of
from oncebus.programs.cli.messages import NUMBER

from .served_broker import Served

NUMBERS = itertools.count()


@pytest.fixture
def name(served: Served) -> str:
    """Create a queue with duplicate detection for one test, and return its name."""
    made = f"q{next(NUMBERS)}"
    served.ok("queue", "create", "-n", made, "--enable-duplicate-detection")
    return made


def taken(served: Served, path: str) -> list[Received]:
    """Receive and delete all messages."""
    served.do(served.broker.counts(path))
    return served.do(served.broker.receive(parse_address(path), 1000, mode=Mode.RECEIVE_AND_DELETE))


def peeked(served: Served, path: str, *words: str) -> list[Any]:
    return served.json_lines("peek", path, *words)


def test_a_message_is_sent_with_its_properties(served: Served, name: str) -> None:
    said = served.ok(
        *("send", name, "hello", "--message-id", "ö/1", "--session-id", "s", "--label", "greeting"),
        *("--correlation-id", "c", "--content-type", "text/plain", "--to", "t", "--reply-to", "r"),
        *("--reply-to-session-id", "rs", "--time-to-live", "1 hour", "--partition-key", "s"),
        *("-p", "orderId=12", "-p", "weight=0.5", "-p", "urgent=true", "-p", 'size="2"', "-p", "note=a=b"),
        *("-p", "due=2026-01-31T08:30:00Z"),
    )
    assert said == f"1 message sent to '{name}'.\n"
    (message,) = peeked(served, name)
    system = message["BrokerProperties"]
    assert message["Body"] == "hello"
    assert message["UserProperties"] == {
        "orderId": 12,
        "weight": 0.5,
        "urgent": True,
        "size": "2",
        "note": "a=b",
        "due": "2026-01-31T08:30:00Z",
    }
    assert {each: system[each] for each in ("MessageId", "SessionId", "PartitionKey", "Label", "CorrelationId")} == {
        "MessageId": "ö/1",
        "SessionId": "s",
        "PartitionKey": "s",
        "Label": "greeting",
        "CorrelationId": "c",
    }
    assert (system["ContentType"], system["To"], system["ReplyTo"], system["ReplyToSessionId"]) == (
        "text/plain",
        "t",
        "r",
        "rs",
    )
    assert (system["TimeToLive"], system["State"]) == (3600, "Active")


def test_the_body_may_come_from_standard_input_and_be_any_bytes(served: Served, name: str) -> None:
    served.ok("send", name, "-", stdin=b"\xff\x00\n")
    served.ok("send", name, "-", stdin="two\nlines")
    first, second = peeked(served, name)
    assert (first["Body"], first["IsBodyBase64"]) == ("/wAK", True)
    assert (second["Body"], second.get("IsBodyBase64")) == ("two\nlines", None)


def test_count_sends_many_messages_and_numbers_their_ids(served: Served, name: str) -> None:
    assert served.json("send", name, "x", "--count", "250", "--message-id", "m-{n}") == {
        "entity": name,
        "sent": 250,
    }
    ids = [message.message.message_id for message in taken(served, name)]
    assert ids == [f"m-{number}" for number in range(1, 251)]


def test_the_same_id_again_is_a_duplicate(served: Served, name: str) -> None:
    served.ok("send", name, "x", "--count", "3", "--message-id", "same")
    assert len(taken(served, name)) == 1
    (third, second) = served.json_lines("duplicates", name)
    assert (third["messageId"], third["sequenceNumber"], third["original"]["sequenceNumber"]) == ("same", 3, 1)
    assert second["sequenceNumber"] == 2
    assert served.json_lines("duplicates", name, "--limit", "1") == [third]


def test_duplicates_are_shown_from_a_time_on_or_for_a_duration(served: Served, name: str) -> None:
    served.ok("send", name, "x", "--count", "2", "--message-id", "same")
    served.do(served.broker.counts(name))
    [drop] = served.json_lines("duplicates", name)
    for since in ("1h", "PT1H", "10000 days", drop["time"]):
        assert served.json_lines("duplicates", name, "--since", since) == [drop]
    later = "2099-01-01T00:00:00Z"
    assert served.ok("duplicates", name, "--since", later) == f"No duplicates were dropped at '{name}' since {later}.\n"
    said = served.refusal("duplicates", name, "--since", "lately")
    assert said.startswith(
        "Option --since has value 'lately'. Not a time like 2026-01-31T08:30:00Z, and not a duration."
    )


def test_duplicates_of_all_entities_and_how_long_after_the_original_they_came(served: Served) -> None:
    for each in ("one", "two"):
        served.ok("queue", "create", "-n", each, "--enable-duplicate-detection")
        served.ok("send", each, "x", "--count", "2", "--message-id", "in-all")
        served.do(served.broker.counts(each))
    found = served.json_lines("duplicates", "--message-id", "in-all")
    assert [drop["entity"] for drop in found] == ["two", "one"]
    shown = served.ok("duplicates", "--message-id", "in-all")
    assert [name in shown for name in ("Duplicates dropped", "one", "two", "after")] == [True] * 4
    assert served.ok("duplicates", "--message-id", "never") == "No duplicate of 'never' was dropped.\n"


def test_the_time_after_the_original_is_shown_if_it_is_known() -> None:
    drop = {"time": "2026-01-31T08:30:12.500000Z", "original": {"time": "2026-01-31T08:30:00.000000Z"}}
    assert after_original(drop) == "12 s"
    assert after_original(drop | {"original": None}) == ""


def test_followed_duplicates_are_printed_as_they_are_dropped(served: Served, name: str) -> None:
    served.ok("send", name, "x", "--count", "2", "--message-id", "a")
    served.do(served.broker.counts(name))
    command = [sys.executable, "-m", "oncebus.programs.cli", "duplicates", name, "--follow", "--data", str(served.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(" after it\n")
        served.ok("send", name, "x", "--count", "2", "--message-id", "b")
        assert "  b  4: duplicate of 3, " in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_large_body_is_sent(served: Served, name: str) -> None:
    served.ok("send", name, "-", "--count", "8", stdin="ö" * 120_000)
    assert [len(message.body) > 240_000 for message in taken(served, name)] == [True] * 8


def test_a_message_may_be_scheduled_by_time_or_from_now(served: Served, name: str) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    served.ok("send", name, "x", "--scheduled", tomorrow)
    served.ok("send", name, "y", "--scheduled", "10m")
    assert [message["BrokerProperties"]["State"] for message in peeked(served, name)] == ["Scheduled", "Scheduled"]
    assert "Not a time like" in served.refusal("send", name, "x", "--scheduled", "soonish")


def test_received_messages_are_printed_and_completed(served: Served, name: str) -> None:
    served.ok("send", name, "one", "--message-id", "1")
    served.ok("send", name, "two\x1b[2J", "--message-id", "2")
    served.do(served.broker.counts(name))
    text = served.ok("receive", name, "--count", "5", "--wait", "0.5")
    assert text == "1  1  one\n2  2  two\\x1b[2J\n"
    assert served.ok("receive", name, "--wait", "0") == f"No message arrived from '{name}'.\n"
    assert peeked(served, name) == []


def test_received_messages_may_be_put_back_or_deleted(served: Served, name: str) -> None:
    own = {"a": 1, "due": Timestamp(1_769_848_200_000), "note": "ö"}
    head, body = encode_message(Properties(message_id="1"), own, b"one")
    served.do(served.broker.send(name, [Incoming(head, body, "1")]))
    served.ok("send", name, "two", "--message-id", "2")
    served.do(served.broker.counts(name))
    held = served.json_lines("receive", name, "--count", "9", "--abandon", "--wait", "0")
    assert [message["Body"] for message in held] == ["one", "two"]
    assert held[0]["UserProperties"] == {"a": 1, "due": "Sat, 31 Jan 2026 08:30:00 GMT", "note": "ö"}
    assert held[0]["BrokerProperties"]["LockToken"]
    assert [message["BrokerProperties"]["DeliveryCount"] for message in peeked(served, name)] == [1, 1]
    assert served.ok("receive", name, "--receive-and-delete") == "1  1  one\n"
    assert len(peeked(served, name)) == 1
    assert served.run("receive", name, "--receive-and-delete", "--abandon").exit_code == 2


def test_dead_letters_are_received_and_peeked(served: Served) -> None:
    served.ok("queue", "create", "-n", "dying", "--max-delivery-count", "1")
    served.ok("send", "dying", "x", "--message-id", "1")
    served.ok("receive", "dying", "--abandon", "--wait", "5")
    (dead,) = peeked(served, "dying", "--dead-letters")
    assert dead["BrokerProperties"]["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "MaxDeliveryCountExceeded" in served.ok("peek", "dying", "--dead-letters")
    done = served.run("receive", "dying", "--dead-letters")
    why = "MaxDeliveryCountExceeded: Message could not be consumed after 1 delivery attempts."
    assert done.stdout.endswith(f"  1  x  [{why}]\n")
    assert done.stderr == "1 dead letter removed from 'dying'.\n"
    assert peeked(served, "dying", "--dead-letters") == []


def test_a_subscription_gets_the_messages_that_its_rules_select(served: Served) -> None:
    served.ok("topic", "create", "-n", "prices")
    rules = [Rule("high", SqlFilter("price > 100"))]
    made = Subscription(topic="prices", name="high")
    served.do(served.broker.change(lambda catalogue, now: catalogue.create(made, now, rules)))
    served.ok("send", "prices", "low", "-p", "price=50")
    served.ok("send", "prices", "high", "-p", "price=150")
    assert [message["Body"] for message in peeked(served, "prices/Subscriptions/high")] == ["high"]
    assert served.ok("receive", "prices/Subscriptions/high").endswith("  high\n")


def test_peek_starts_at_a_sequence_number_and_reads_many_pages(served: Served, name: str) -> None:
    served.ok("send", name, "x", "--count", "130", "--message-id", "{n}")
    found = peeked(served, name, "--count", "1000")
    assert [message["BrokerProperties"]["MessageId"] for message in found] == [str(at) for at in range(1, 131)]
    found = peeked(served, name, "--from", "129")
    assert [message["BrokerProperties"]["SequenceNumber"] for message in found] == [129, 130]
    assert len(peeked(served, name, "--count", "3")) == 3
    table = served.ok("peek", name, "--count", "1")
    assert "│ 1               │ 1          │ Active │" in table
    assert "There are no messages" in served.ok("peek", name, "--from", "999")


def test_peek_can_be_limited_to_one_session(served: Served) -> None:
    served.ok("queue", "create", "-n", "sessions", "--enable-session")
    for session in ("a", "b", "a"):
        served.ok("send", "sessions", "x", "--session-id", session)
    assert len(peeked(served, "sessions", "--session-id", "a")) == 2
    assert "answers 400: " in served.refusal("receive", "sessions", "--wait", "0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "nowhere", "x"], "answers 404: "),
        (["receive", "nowhere"], "answers 404: "),
        (["peek", "nowhere"], "answers 404: "),
        (["peek", "news"], "answers 400: "),
        (["send", "news", "x", "--property", "a"], "Option --property has value 'a'. Write it like name=value."),
        (["send", "news", "x", "--message-id", "i" * 129], "answers 400: "),
        (["quarantine", "--discard", "7"], "No such message in quarantine: '7'."),
        (["quarantine", "--entity", "nowhere"], "answers 404: "),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(served: Served, words: list[str], said: str) -> None:
    served.ok("topic", "create", "-n", "news")
    assert said in served.refusal(*words)


def test_a_wrong_command_line_is_exit_code_2(served: Served) -> None:
    for words in (["send", "q"], ["send", "q", "x", "--count", "0"], ["receive", "q", "--wait", "-1"], ["peek"]):
        assert served.run(*words).exit_code == 2
    assert served.run("quarantine", "--entity", "q", "--discard", "1").exit_code == 2


# Monitoring


def test_top_shows_the_counts_of_entities(served: Served, name: str) -> None:
    served.ok("send", name, "x", "--count", "3", "--message-id", "same")
    served.ok("send", name, "y", "--scheduled", "1 hour")
    served.do(served.broker.counts(name))
    row = next(line for line in served.ok("top", "--once").splitlines() if f" {name} " in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    # The age of the oldest message depends on the time.
    assert cells[:3] + cells[4:] == [name, "queue", "1", "0", "0", "4", "2", "0", "0", "", ""]
    assert re.fullmatch(r"\d+ (ms|s|min)", cells[3])
    (line,) = [each for each in served.json_lines("top", "--once") if each["entity"] == name]
    assert (line["active"], line["duplicates"], line["receivers"], line["perSecond"]) == (1, 2, 0, None)


def test_escaped_labels_of_metrics_are_unescaped() -> None:
    metrics = (
        "# HELP oncebus_messages Messages held, by state.\n"
        'oncebus_messages{entity="a\\"b\\\\c",kind="queue",state="active"} 7\n'
        'oncebus_messages{entity="a\\"b\\\\c",kind="queue",state="deferred"} 1\n'
        'oncebus_messages_incoming_total{entity="a\\"b\\\\c",kind="queue"} 9\n'
        "oncebus_messages_discarded_total 3\n"
        "oncebus_pipeline_lag_seconds 0.5\n"
    )
    assert loads_of(metrics) == [Load('a"b\\c', "queue", {"active": 7, "deferred": 1, "incoming": 9})]


def test_rates_come_from_the_difference_of_two_counts() -> None:
    before = [Load("a", "queue", {"incoming": 10, "duplicates": 1}), Load("made anew", "queue", {"incoming": 50})]
    after = [Load("a", "queue", {"incoming": 30, "duplicates": 2}), Load("made anew", "queue", {"incoming": 5})]
    assert rates_of(before, [*after, Load("new", "queue", {"incoming": 5})], 2.0) == {
        "a": {**dict.fromkeys(TOTALS, 0.0), "incoming": 10.0, "duplicates": 0.5},
        "made anew": dict.fromkeys(TOTALS, 0.0),
    }
    assert rates_of(None, after, 2.0) == {}


@pytest.mark.parametrize("words", [["--json"], []])
def test_top_runs_until_it_is_interrupted(served: Served, name: str, words: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "oncebus.programs.cli",
        "top",
        "--interval",
        "0.1",
        "--data",
        str(served.data),
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        looks = 0
        for line in process.stdout:
            looks += name in line
            if looks == 3:
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=30)
    assert looks == 3
    assert process.returncode == 0


def test_an_empty_quarantine_is_reported(served: Served) -> None:
    assert served.ok("quarantine") == "There are no messages in quarantine.\n"
    assert served.ok("quarantine", "--json") == ""


def test_messages_in_quarantine_are_shown_released_and_discarded(served: Served) -> None:
    """The messages end up in quarantine because a rule needs their properties, and these are unreadable."""
    served.ok("topic", "create", "-n", "unreadable")
    made = Subscription(topic="unreadable", name="some")
    rules = [Rule("x", SqlFilter("x = 1"))]
    served.do(served.broker.change(lambda catalogue, now: catalogue.create(made, now, rules)))
    broken = Incoming(b"\x00\x53\x73\xd0\x00", b"", "id\x1b")
    served.do(served.broker.send("unreadable", [broken] * 3))
    served.do(served.broker.counts("unreadable"))
    table = served.ok("quarantine", "--entity", "unreadable")
    assert "id\\x1b" in table
    numbers = [str(each["number"]) for each in served.json_lines("quarantine", "--entity", "unreadable")]
    assert len(numbers) == 3
    said = served.ok("quarantine", "--discard", numbers[0], "--discard", "999999")
    assert said == "1 message discarded.\nNot in quarantine: 999999.\n"
    assert served.json_lines("quarantine", "--discard", numbers[1]) == [
        {"discarded": [int(numbers[1])], "notFound": []}
    ]
    assert served.ok("quarantine", "--release", numbers[2]) == "1 message released.\n"
    assert numbers[2] not in [str(each["number"]) for each in served.json_lines("quarantine")]


def test_an_id_is_forgotten(served: Served, name: str) -> None:
    served.ok("send", name, "one", "--message-id", "order/1")
    assert served.ok("forget", name, "--list") == f"No ids were forgotten at '{name}'.\n"
    said = served.ok("forget", name, "order/1")
    assert said.startswith(f"'order/1' is forgotten at '{name}'. It was remembered since ")
    assert said.endswith(", from message 1.\n")
    assert served.ok("forget", name, "order/1") == f"'order/1' was not remembered at '{name}'.\n"
    served.ok("send", name, "two", "--message-id", "order/1")
    assert len(taken(served, name)) == 2
    first, second = served.json_lines("forget", name, "--list")
    assert (first["messageId"], first["original"]["sequenceNumber"], second["original"]) == ("order/1", 1, None)
    assert "order/1" in served.ok("forget", name, "--list")


def test_messages_are_purged(served: Served, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGED_AT_ONCE", 2)
    monkeypatch.setattr(maintenance, "MOST_PURGED", 4)
    served.ok("send", name, "x", "--message-id", f"id {NUMBER}", "--count", "10")
    assert served.ok("purge", name) == f"10 messages deleted from '{name}'.\n"
    assert served.json("purge", name, "--json") == {"entity": name, "deleted": 0, "left": 0}
    assert served.ok("purge", name, "--dead-letters") == f"0 dead letters deleted from '{name}'.\n"
    served.ok("send", name, "x", "--message-id", "id 1")
    assert taken(served, name) == [], "its id is still remembered"
