"""Reduces any error to one line that a person can act on."""

from __future__ import annotations

import re

from oncebus.values.errors import OncebusError, line_of_task
from oncebus.values.extras import explain_missing

_RAISED_BY_A_QUERY = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*$")
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ")


class RequestError(OncebusError, ValueError):
    """The command cannot do what its arguments ask for."""


def in_lines(error: BaseException) -> list[str]:
    """Return the lines to print for an error: one, or one per problem if the error has several."""
    several = getattr(error, "lines", None) if isinstance(error, OncebusError) else None
    return [_join_lines(line) for line in several] if several else [in_one_line(error)]


def in_one_line(error: BaseException) -> str:
    """Return the message of an error as one line, without a traceback."""
    if isinstance(error, OncebusError):
        return _join_lines(str(error))
    if isinstance(error, ModuleNotFoundError) and isinstance(told := explain_missing(error), OncebusError):
        return _join_lines(str(told))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return _of_spark(str(error)) or type(error).__name__


def _of_spark(text: str) -> str:
    if line := line_of_task(text):
        return line
    if found := _RAISED_BY_A_QUERY.findall(text):
        return _join_lines(str(found[-1]))
    causes = _CAUSE.findall(text)
    conditions = _CONDITION.findall(text)
    # The innermost condition says what is wrong; the outer ones only say that something failed.
    line = conditions[-1] if conditions else causes[-1] if causes else text.strip().partition("\n")[0]
    return _join_lines(_SQLSTATE.sub("", _JAVA_CLASS.sub("", line)))


def _join_lines(text: str) -> str:
    return " ".join(text.split())
