"""`oncebus doctor`: checks Spark, its executors and the place of a ledger, and says what to do."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from oncebus.doctor.findings import Finding, Status, failure, is_passed
from oncebus.doctor.program import DoctorRequest, run_checks
from oncebus.doctor.watchdog import watch
from oncebus.programs.cli.printing import count_text, print_json
from oncebus.programs.cli.signals import interrupt_on_sigterm

_EXAMPLE = "oncebus doctor --master spark://head:7077 --ledger /shared/ledger"
_COLORS = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "red", Status.SKIPPED: "yellow"}


@click.command(short_help="Check Spark, its executors and a ledger's place.", epilog=f"Example: {_EXAMPLE}")
@click.option("--master", metavar="URL", help="Spark master; defaults to local[2].")
@click.option("--remote", metavar="URL", help="Address of Spark Connect, such as sc://head:15002, instead of a master.")
@click.option("--ledger", metavar="PLACE", help="Path or URI of a ledger, or of one that you want to create.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="Spark setting; repeatable.")
@click.option(
    "--timeout",
    type=click.FloatRange(10, 86_400),
    default=120.0,
    metavar="SECONDS",
    help="Time limit for all checks together; defaults to 120.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
def doctor(
    master: str | None, remote: str | None, ledger: str | None, settings: tuple[str, ...], timeout: float, as_json: bool
) -> None:
    """Check what a job needs before you run it: one line for each check, with what was found and what to do.

    It checks Python, Java and packages here and on the executors, their clocks, Spark's settings, and whether a ledger
    can be written and is shared. It leaves no files, unless a check hangs beyond the time limit. The exit code is 1 if
    a check failed. A warning costs speed or safety, but stops no job.
    """
    if master is not None and remote is not None:
        raise click.UsageError("Give either --master or --remote.")
    request = DoctorRequest(master or "local[2]", remote, ledger, _parse_settings(settings), timeout)
    interrupt_on_sigterm()
    report = _Report(as_json=as_json)
    with watch(timeout, report.close_late):
        for finding in run_checks(request):
            report.add(finding)
    report.close()
    sys.exit(0 if is_passed(report.findings) else 1)


class _Report:
    """Collects the findings, and prints each at once unless the output is JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.findings: list[Finding] = []
        self._as_json = as_json
        self._started = time.monotonic()

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.findings.append(finding)
        if not self._as_json:
            click.echo(finding.line(click.style(finding.padded, fg=_COLORS[finding.status])))

    def close(self) -> None:
        """Print the summary."""
        seconds = time.monotonic() - self._started
        if self._as_json:
            found = [
                {"check": each.check, "status": each.status, "found": each.found, "advice": each.advice}
                for each in self.findings
            ]
            print_json({"passed": is_passed(self.findings), "seconds": round(seconds, 1), "findings": found})
            return
        counts = Counter(each.status for each in self.findings)
        parts = [f"{counts[status]} {status}" for status in Status if counts[status]]
        click.echo(f"{count_text(len(self.findings), 'check')} in {seconds:.1f} s: {', '.join(parts)}")

    def close_late(self) -> None:
        """Report that a check hangs, and print the summary."""
        last = f"after '{self.findings[-1].check}'" if self.findings else "at the start"
        advice = "Give a longer --timeout, or look at what hangs: a file system, or Spark's start."
        self.add(failure("time limit", f"no answer {last}", advice))
        self.close()
        sys.stdout.flush()


def _parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--conf '{text}' is not a setting. Write NAME=VALUE.")
        found[name] = value
    return found
