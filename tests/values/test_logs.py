from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncebus.model.access import Right, connection_string, make_token
from oncebus.model.access.authorization_rule import fresh_rule
from oncebus.values.logs import (
    ALIKE_SECONDS,
    LOGGER,
    MOST_ALIKE,
    OTHERS,
    JsonFormatter,
    Repeats,
    TextFormatter,
    configure,
    mask,
)

RULE = fresh_rule("rule", [Right.SEND])
TOKEN = make_token("sb://host/queue", "rule", RULE.primary_key, 1_800_000_000_000_000)
SIGNATURE = TOKEN.split("sig=")[1].split("&")[0]


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    all_of_them = [logging.getLogger(name) for name in (LOGGER, *OTHERS)]
    before = [(each.handlers[:], each.level, each.propagate) for each in all_of_them]
    yield all_of_them[0]
    for each, (handlers, level, propagate) in zip(all_of_them, before, strict=True):
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


def record(message: str, *arguments: object, fields: object = None, error: BaseException | None = None) -> Any:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("oncebus.gateway", logging.INFO, "x.py", 1, message, arguments, info)
    made.created = 1_767_225_600.25
    if fields is not None:
        made.fields = fields
    return made


@pytest.mark.parametrize(
    ("fields", "tail"),
    [
        (None, ""),
        ({}, ""),
        ({"batch": 7, "rows": 1200}, " batch=7 rows=1200"),
        ({"entity": "orders", "note": "two words", "empty": ""}, ' entity=orders note="two words" empty=""'),
        ({"ok": True, "none": None, "list": [1, "a"]}, ' ok=true none=null list=[1, "a"]'),
        ({"line": "a\nb"}, ' line="a\\nb"'),
        ("not a mapping", ""),
    ],
)
def test_a_record_is_one_line_of_text(fields: object, tail: str) -> None:
    line = TextFormatter().format(record("Batch %s", "taken", fields=fields))
    assert line == f"2026-01-01T00:00:00.250Z INFO oncebus.gateway Batch taken{tail}"


def test_a_record_is_one_json_object() -> None:
    line = JsonFormatter().format(record("Tag\n%d", 5, fields={"rows": 3, "level": "mine", "of": {"a": (1, object)}}))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "INFO",
        "logger": "oncebus.gateway",
        "message": "Tag\n5",
        "rows": 3,
        "level_": "mine",
        "of": {"a": [1, "<class 'object'>"]},
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_record_cannot_control_the_terminal(formatter: logging.Formatter) -> None:
    text = "a\x1b[2J\x7f\x9b2J\u202e\u2066\u2028b"
    line = formatter.format(record("%s", text, fields={"note": text}))
    assert line.isprintable()
    if isinstance(formatter, JsonFormatter):
        assert (json.loads(line)["message"], json.loads(line)["note"]) == (text, text)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_an_error_comes_with_its_traceback_in_the_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(f"bad {TOKEN}")
    except ValueError as error:
        line = formatter.format(record("Failed", error=error))
    assert len(line.splitlines()) == 1
    assert "ValueError: bad SharedAccessSignature" in line
    assert "test_logs.py" in line
    assert SIGNATURE not in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@given(text=st.text())
def test_no_text_breaks_the_line(formatter: logging.Formatter, text: str) -> None:
    line = formatter.format(record("%s", text, fields={"name": text, text: 1}))
    assert "\n" not in line
    assert "\r" not in line
    if isinstance(formatter, JsonFormatter):
        assert json.loads(line)["message"] == mask(text)


@pytest.mark.parametrize(
    "text",
    [
        connection_string("host", 5672, RULE, emulator=True),
        f"sharedaccesskey={RULE.primary_key}",
        f'{{"SharedAccessKey": "{RULE.primary_key}", "x": 1}}',
        f"{{'primary_key': '{RULE.primary_key}', 'secondaryKey': '{RULE.secondary_key}'}}",
        f"<PrimaryKey>{RULE.primary_key}</PrimaryKey><SecondaryKey>{RULE.secondary_key}</SecondaryKey>",
        TOKEN,
        f"Endpoint=sb://h/;SharedAccessSignature={TOKEN}",
        f"GET /?token={TOKEN.replace('=', '%3D').replace('&', '%26')}",
        f"PrimaryKey={RULE.primary_key}",
    ],
    ids=range(9),
)
def test_keys_and_signatures_are_masked_anywhere(text: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record(f"Got {text}", fields={"a": text, "b": [text], "c": {"d": text}}))
        for secret in (RULE.primary_key[:-4], RULE.secondary_key[:-4], SIGNATURE[:20]):
            assert secret not in line
        assert "***" in line


@pytest.mark.parametrize("text", ["SharedAccessKeyName=rule;x", "design=5", "the signature", "a key: none", "sig"])
def test_other_text_is_not_masked(text: str) -> None:
    assert mask(text) == text


def test_a_message_that_does_not_fit_its_arguments_is_still_logged() -> None:
    assert "Rows %d" in TextFormatter().format(record("Rows %d", "many"))


def test_configuring_sends_oncebus_to_one_stream_at_a_level() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("text", "info", first)
    configure("json", "warning", second)
    log = logging.getLogger("oncebus.gateway")
    log.info("quiet")
    log.warning("loud", extra={"fields": {"n": 1}})
    assert first.getvalue() == ""
    (line,) = second.getvalue().splitlines()
    content = json.loads(line)
    assert (content["message"], content["level"], content["n"]) == ("loud", "WARNING", 1)


def test_a_repeated_line_is_written_a_few_times_and_then_with_the_number_of_omitted_ones() -> None:
    now = 0.0
    stream, repeats = io.StringIO(), Repeats(lambda: now)
    configure("json", "info", stream)
    logger = logging.getLogger("oncebus.x")
    (handler,) = logging.getLogger("oncebus").handlers
    handler.filters[:] = [repeats]

    def written() -> list[dict[str, Any]]:
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    def say(count: int) -> None:
        for number in range(count):
            logger.warning("Refused %d", number, extra={"fields": {"number": number}})

    say(1000)
    logger.warning("Something else")
    assert [line["message"] for line in written()] == [*[f"Refused {n}" for n in range(MOST_ALIKE)], "Something else"]
    now += ALIKE_SECONDS
    say(2)
    assert [line.get("left_out") for line in written()[-2:]] == [1000 - MOST_ALIKE, None]
    assert written()[-2]["number"] == 0
    logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert written()[-1]["logger"] == "asyncio"


def test_json_web_tokens_and_secrets_of_programs_are_masked() -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2ln-bmF0_dXJl"
    assert mask(f"Bearer {token} was sent") == "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.*** was sent"
    assert mask("client_id=a&client_secret=abc%2B&x=1") == "client_id=a&client_secret=***&x=1"
