"""Logs: one line a record, for people or for machines, with no key or token in it.

A record's own facts are given as `logger.info("Batch taken", extra={"fields": {"batch": 7, "rows": 1200}})`.
As text:  2026-01-01T00:00:00.000Z INFO oncebus.gateway Batch taken batch=7 rows=1200
As JSON:  {"time": …, "level": "INFO", "logger": …, "message": …, "batch": 7, "rows": 1200}

A line that comes again and again is written a few times only, and then with how many were left out.
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
OTHERS = ("asyncio", "uvicorn.error")
"""Loggers of libraries that run inside the process. Their warnings and errors are written alike."""
MOST_ALIKE = 20
"""Lines of one place in the program that are written within `ALIKE_SECONDS`."""
ALIKE_SECONDS = 10.0
_MOST_PLACES = 1000
_MESSAGE_CHARACTERS = 200
_OWN = ("time", "level", "logger", "message")
_SECRETS = (
    # SharedAccessKey=…; in a connection string, and the same or a rule's key in JSON, XML or a repr.
    re.compile(r"(\b(?:SharedAccess|Primary|Secondary)_?Key\b[^\w\s]{0,3}[=:>]\s*[\"']?)[^\s;\"'<,&}]+", re.IGNORECASE),
    # The signature of a token, itself perhaps url-encoded.
    re.compile(r"((?<![A-Za-z])sig(?:=|%3D))[^\s;\"'<,&]+", re.IGNORECASE),
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def masked(text: str) -> str:
    """The text without the keys and signatures that can be told by what stands before them."""
    for secret in _SECRETS:
        text = secret.sub(rf"\g<1>{MASK}", text)
    return text


class TextFormatter(logging.Formatter):
    """A record as one line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        facts = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_message(record)}"
        return _CONTROLS.sub(_escaped, f"{line} {facts}" if facts else line)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object. A field that bears the name of one of the record's own gets a `_` behind."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        content: dict[str, Any] = dict(
            zip(_OWN, (_time(record), record.levelname, record.name, _message(record)), strict=True)
        )
        for name, value in _fields(record).items():
            content[f"{name}_" if name in _OWN else name] = value
        return json.dumps(content, ensure_ascii=False)


class Repeats(logging.Filter):
    """Lets a few records of each place in the program through, and counts the others.

    The first one to pass after others were left out has their number as the field `left_out`. Whoever can make the
    process log can otherwise fill its disk, or stop it for as long as writing takes.
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


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send the records of `oncebus` and below, and what libraries warn of, to a stream, standard error unless given.

    `form` is text or json; `level` one of logging's names, in any case. A second call replaces the first.
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
        return masked(record.getMessage())
    except Exception:
        # A message that does not fit its arguments is a fault of the caller; the record still tells where.
        return masked(str(record.msg))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", None)
    fields = {str(name): _safe(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    if record.exc_info and record.exc_info[1] is not None:
        fields["error"] = masked(traceback.format_exception_only(record.exc_info[1])[-1].strip())
        fields["traceback"] = masked("".join(traceback.format_exception(*record.exc_info)).strip())
    return fields


def _safe(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(item) for item in value]
    return masked(str(value))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
