"""Writes logs: one line per record, as text or JSON, without keys and tokens.

A record's own fields are passed as `logger.info("Batch taken", extra={"fields": {"batch": 7, "rows": 1200}})`.
As text:  2026-01-01T00:00:00.000Z INFO oncebus.gateway Batch taken batch=7 rows=1200
As JSON:  {"time": …, "level": "INFO", "logger": …, "message": …, "batch": 7, "rows": 1200}

If a line repeats quickly, only the first few are written. The next line that is written says how many were omitted.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

MASK = "***"
LOGGER = "oncebus"
OTHERS = ("asyncio", "opentelemetry", "py.warnings", "uvicorn.error")
"""Loggers of libraries in the same process, and Python's own warnings. They are written in the same way."""
MOST_ALIKE = 20
"""The maximum number of log lines that one line of code may write within `ALIKE_SECONDS`."""
ALIKE_SECONDS = 10.0
_MOST_PLACES = 1000
_MESSAGE_CHARACTERS = 200
_OWN = ("time", "level", "logger", "message")
_SECRETS = (
    # SharedAccessKey=… in a connection string, and that or a rule's key in JSON, XML or a repr.
    re.compile(r"(\b(?:SharedAccess|Primary|Secondary)_?Key\b[^\w\s]{0,3}[=:>]\s*[\"']?)[^\s;\"'<,&}]+", re.IGNORECASE),
    # The signature of a token, which may be URL-encoded.
    re.compile(r"((?<![A-Za-z])sig(?:=|%3D))[^\s;\"'<,&]+", re.IGNORECASE),
    # The signature of a JSON Web Token, and the secret of a program that signs in.
    re.compile(r"(\beyJ[\w-]+\.[\w-]+\.)[\w-]+"),
    re.compile(r"(\bclient_secret\b[^\w\s]{0,3}[=:]\s*[\"']?)[^\s;\"'<,&}]+", re.IGNORECASE),
)
# Controls, line separators, and marks that change the direction of text.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def mask(text: str) -> str:
    """Return the text with keys and signatures replaced by `MASK`. Finds them by the name in front of them."""
    for secret in _SECRETS:
        text = secret.sub(rf"\g<1>{MASK}", text)
    return text


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        facts = " ".join(f"{name}={_value_text(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_message(record)}"
        return _CONTROLS.sub(_escape, f"{line} {facts}" if facts else line)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object. A field named `time`, `level`, `logger` or `message` gets a `_` suffix."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        content: dict[str, Any] = dict(
            zip(_OWN, (_time(record), record.levelname, record.name, _message(record)), strict=True)
        )
        for name, value in _fields(record).items():
            content[f"{name}_" if name in _OWN else name] = value
        return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(content, ensure_ascii=False))


class Repeats(logging.Filter):
    """Lets through a few records from each line of code, and counts the others.

    The first record that passes after others were omitted has their number in the field `left_out`. Without this
    limit, a client that can make the process log could fill the disk, or stall the process while it writes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._places: dict[tuple[str, int, str], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        key, now = (record.pathname, record.lineno, str(record.msg)[:_MESSAGE_CHARACTERS]), self._clock()
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            place = self._places[key] = _Place(now)
        elif now >= place.since + ALIKE_SECONDS:
            place.since, place.written = now, 0
        if place.written >= MOST_ALIKE:
            place.left_out += 1
            return False
        place.written += 1
        if place.left_out:
            given = getattr(record, "fields", None)
            record.fields = {**(given if isinstance(given, Mapping) else {}), "left_out": place.left_out}
            place.left_out = 0
        return True


@dataclass(slots=True)
class _Place:
    since: float
    written: int = 0
    left_out: int = 0


def announcement(text: str, level: int = logging.INFO) -> str:
    """Return a line that a command prints besides its log: the text, or JSON if the log is JSON. Masks nothing."""
    handlers = logging.getLogger(LOGGER).handlers
    if not any(isinstance(handler.formatter, JsonFormatter) for handler in handlers):
        return text
    record = logging.LogRecord(LOGGER, level, "", 0, text, (), None)
    own = zip(_OWN, (_time(record), record.levelname, record.name, text), strict=True)
    return json.dumps(dict(own), ensure_ascii=False)


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send the records of `oncebus`, and the warnings of libraries, to a stream; by default to standard error.

    `form` is text or json. `level` is a level name of `logging`, in any letter case. A second call replaces the first.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(Repeats())
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    for name in OTHERS:
        other = logging.getLogger(name)
        other.handlers[:] = [handler]
        other.setLevel(logging.WARNING)
        other.propagate = False


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return mask(record.getMessage())
    except Exception:
        # The caller passed arguments that do not fit the format. Log the format: it still shows where that happened.
        return mask(str(record.msg))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", None)
    fields = {str(name): _safe(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    if record.exc_info and record.exc_info[1] is not None:
        fields["error"] = mask(traceback.format_exception_only(record.exc_info[1])[-1].strip())
        fields["traceback"] = mask("".join(traceback.format_exception(*record.exc_info)).strip())
    return fields


def _safe(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(item) for item in value]
    return mask(str(value))


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
