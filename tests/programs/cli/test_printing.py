"""What senders write cannot control the terminal of the reader."""

from __future__ import annotations

import json

import pytest

from oncebus.programs.cli.printing import json_text, print_json, print_line

HOSTILE = "a\x1b[2J\x7f\x85\x9b2J\u202e\u2066\u200e\u2028\ufeff\U000e0001b"
FRIENDLY = "Grüße, 世界 👍 [{\"'\\"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_escapes_what_cannot_be_printed_and_loses_nothing(indent: int | None) -> None:
    value = {HOSTILE: [HOSTILE, FRIENDLY], "n": {"a": 1}}
    text = json_text(value, indent)
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == value
    assert FRIENDLY.partition('"')[0] in text


def test_all_json_of_the_commands_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"Body": HOSTILE})
    print_line({"Body": HOSTILE})
    assert capsys.readouterr().out.replace("\n", "").isprintable()
