"""Decides whether the Python workers of the executors fit to the driver, from what they report."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncebus.doctor.findings import Finding, failure, ok, warning
from oncebus.doctor.versions import minor

EXECUTORS = "executors"


@dataclass(frozen=True, slots=True)
class Report:
    """What a Python worker says about itself. A package that cannot be imported has the error, with `!` in front.

    `process` is the worker's parent: workers of one executor have the same. `socket_folder` is the mode of the folder
    for Unix sockets; None if there is none.
    """

    host: str
    process: int
    python: str
    executable: str
    packages: dict[str, str]
    time: float
    socket_folder: int | None = None

    @property
    def executor(self) -> tuple[str, int]:
        """Return what identifies the executor of the worker."""
        return self.host, self.process


@dataclass(frozen=True, slots=True)
class Own:
    """The versions of this process, which the executors must have too."""

    python: str
    executable: str
    packages: dict[str, str]


def reach_finding(reports: Sequence[Report], known: int | None) -> Finding:
    """Judge whether a task ran on every executor. `known` is how many Spark has; None if it does not tell."""
    executors = {report.executor for report in reports}
    hosts = sorted({report.host for report in reports})
    named = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
    found = f"tasks ran on {len(executors)}, on {named}"
    if known is not None and len(executors) < known:
        return warning(EXECUTORS, f"{found}; Spark has {known}", "Run again while the cluster is idle.")
    return ok(EXECUTORS, found)


def worker_findings(reports: Sequence[Report], own: Own) -> list[Finding]:
    """Judge the Python and the packages of the workers."""
    hint = "Let Spark's workers run the Python of the driver: set PYSPARK_PYTHON, or spark.pyspark.python"
    install = f"Install it there, or run: export PYSPARK_PYTHON='{own.executable}'"
    return [
        _same("executors' Python", reports, lambda report: minor(report.python), minor(own.python), f"{hint}."),
        _same(
            "executors' Oncebus",
            reports,
            lambda report: report.packages["oncebus"],
            own.packages["oncebus"],
            f"{install} (also: --archives with a packed environment).",
        ),
        _same(
            "executors' PySpark",
            reports,
            lambda report: report.packages["pyspark"],
            own.packages["pyspark"],
            "Install the same version of Spark on all machines.",
        ),
        _importable("executors' PyArrow", reports, "pyarrow", f"{install}."),
    ]


def _same(check: str, reports: Sequence[Report], version: Callable[[Report], str], own: str, advice: str) -> Finding:
    for report in reports:
        seen = version(report)
        if seen.startswith("!"):
            return failure(check, _unimportable(report, seen), advice)
        if seen != own:
            found = f"{seen} on '{report.host}' ('{report.executable}'), but {own} here"
            return failure(check, found, advice)
    return ok(check, f"{own} everywhere")


def _importable(check: str, reports: Sequence[Report], name: str, advice: str) -> Finding:
    for report in reports:
        if report.packages[name].startswith("!"):
            return failure(check, _unimportable(report, report.packages[name]), advice)
    return ok(check, ", ".join(sorted({report.packages[name] for report in reports})))


def _unimportable(report: Report, error: str) -> str:
    return f"'{report.executable}' on '{report.host}': {error[1:].rstrip('.')}"


_PLACE = re.compile(r"\((\S+) executor (\S+)\)")
_MISMATCH = re.compile(r"PYTHON_VERSION_MISMATCH\] .*?different version: (\S+) than that in driver: ([^\s,]+)")
_MODULE = re.compile(r"ModuleNotFoundError: (No module named '[^']+')")
_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')


def failure_finding(text: str, own: Own) -> Finding:
    """Explain why no Python worker could report, from the text of Spark's error."""
    host = f" on '{place[1]}'" if (place := _PLACE.search(text)) else ""
    hint = f"Let Spark's workers run the Python of the driver: export PYSPARK_PYTHON='{own.executable}'"
    if match := _MISMATCH.search(text):
        return failure("executors' Python", f"{match[1]}{host}, but {match[2]} here", f"{hint} on all machines.")
    if match := _PROGRAM.search(text):
        return failure("executors' Python", f"'{match[1]}'{host} cannot be started", f"{hint}, which must exist there.")
    if match := _MODULE.search(text):
        return failure("executors' Python", f"the workers' Python{host}: {match[1]}", f"Install it there. {hint}.")
    return failure(EXECUTORS, f"the first task failed{host}: {one_line(text)}", "Look at the executors' logs.")


_CAUSED = re.compile(r"(?:^|\s)(?:[\w$]+\.)*[\w$]+(?:Exception|Error): (.+)$", re.MULTILINE)


def one_line(text: str) -> str:
    """Return the innermost message of an error of Spark."""
    found = _CAUSED.findall(text)
    line = found[-1] if found else next((line for line in text.splitlines() if line.strip()), "no reason given")
    return " ".join(line.split())[:300].rstrip(".")
