"""Defines the result of a check: a status, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_WIDTH = 18


class Status(StrEnum):
    """How a check ended. Only `FAILED` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` says what to do; it is empty if there is nothing to do."""

    check: str
    status: Status
    found: str
    advice: str = ""

    @property
    def text(self) -> str:
        """Return what was found and what to do, on one line."""
        return " ".join(f"{self.found}. {self.advice}".split() if self.advice else self.found.split())

    def line(self, status: str | None = None) -> str:
        """Return the line to print. `status` replaces the status, for instance by a coloured one of the same width."""
        # Executors and stores send texts. They must not control the terminal.
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in self.text)
        return f"{self.padded if status is None else status} {self.check:<{_WIDTH}} {text}"

    @property
    def padded(self) -> str:
        """Return the status, as wide as the longest one."""
        return f"{self.status:<7}"


def ok(check: str, found: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(check, Status.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    """Return a finding that costs speed or safety, but stops no job."""
    return Finding(check, Status.WARNING, found, advice)


def failure(check: str, found: str, advice: str) -> Finding:
    """Return a finding that stops jobs."""
    return Finding(check, Status.FAILED, found, advice)


def skip(check: str, why: str) -> Finding:
    """Return the finding of a check that could not run."""
    return Finding(check, Status.SKIPPED, why)


def is_passed(findings: Iterable[Finding]) -> bool:
    """Return whether no check failed."""
    return all(finding.status is not Status.FAILED for finding in findings)
