"""`oncebus top` of one entity, `completion`, and paths of subscriptions as people type them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncebus.programs.cli.figures import age
from oncebus.programs.cli.paths import subscription_path

from .served_broker import Served


def test_top_shows_one_entity_until_it_is_interrupted(served: Served) -> None:
    name = "watched"
    served.ok("queue", "create", "-n", name, "--enable-duplicate-detection")
    served.ok("send", name, "x", "--count", "3", "--message-id", "same")
    served.do(served.broker.counts(name))
    words = [sys.executable, "-m", "oncebus.programs.cli", "top", name, "--json", "--interval", "0.1"]
    command = [*words, "--data", str(served.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert (first["entity"], first["incoming"], first["duplicates"], first["active"]) == (name, 3, 2, 1)
    assert first["perSecond"] is None
    assert second["perSecond"]["incoming"] == 0


def test_a_consumer_over_http_is_polling(served: Served) -> None:
    name = "polled"
    served.ok("queue", "create", "-n", name)
    assert " polling " not in served.ok("top", name, "--once")
    served.ok("receive", name)
    assert " polling " in served.ok("top", name, "--once")
    [line] = served.json_lines("top", name, "--once")
    assert (line["receivers"], line["isPolled"]) == (0, True)


def test_top_says_that_an_entity_does_not_exist(served: Served) -> None:
    done = served.run("top", "nowhere")
    assert (done.exit_code, done.stderr) == (1, "oncebus: There is no queue, topic or subscription 'nowhere'.\n")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "250 ms"), (1, "1 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text


# Paths


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("events/big", "events/Subscriptions/big"),
        ("a/b/c", "a/b/Subscriptions/c"),
        ("/events/big/", "events/Subscriptions/big"),
        ("events", None),
        ("events/Subscriptions/big", None),
        ("events/subscriptions/big", None),
        ("/", None),
    ],
)
def test_topic_and_name_may_mean_a_subscription(given: str, meant: str | None) -> None:
    assert subscription_path(given) == meant


def test_topic_and_name_are_understood_as_a_subscription(served: Served) -> None:
    served.ok("topic", "create", "-n", "events")
    served.ok("subscription", "create", "-n", "big", "--topic-name", "events")
    served.ok("send", "events", "hello", "--message-id", "1")
    assert "hello" in served.ok("peek", "events/big")
    assert served.ok("receive", "events/big", "--wait", "5") == "1  1  hello\n"
    assert served.ok("peek", "events/big") == "There are no messages in 'events/Subscriptions/big'.\n"
    assert served.refusal("send", "events/big", "x") == "'events/big' is a subscription. Send to its topic 'events'."
    assert "'events/small'" in served.refusal("receive", "events/small")


def test_a_queue_with_a_slash_in_its_name_is_no_subscription(served: Served) -> None:
    served.ok("queue", "create", "-n", "a/b")
    served.ok("send", "a/b", "x")
    assert served.ok("receive", "a/b", "--wait", "5").endswith("  x\n")


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(served: Served, shell: str) -> None:
    assert f"_ONCEBUS_COMPLETE={shell}_complete" in served.ok("completion", shell)


def test_bash_completes_commands_and_options_with_the_script(served: Served) -> None:
    lines = [
        served.ok("completion", "bash"),
        'complete_words() { COMPREPLY=(); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _oncebus_completion "$ONCEBUS"; }',
        'complete_words oncebus rec; echo "${COMPREPLY[@]}"',
        'complete_words oncebus receive --dead; echo "${COMPREPLY[@]}"',
    ]
    command = str(Path(sys.executable).with_name("oncebus"))
    environment = {**os.environ, "ONCEBUS": command}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["receive", "--dead-letters"], done.stderr
