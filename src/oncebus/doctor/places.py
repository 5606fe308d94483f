"""Decides whether a ledger can live in its place, from what the driver and the executors found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncebus.doctor.clocks import Offset, clock_finding
from oncebus.doctor.findings import Finding, failure, ok, warning
from oncebus.doctor.trial import Sight, Trial

WRITING, SHARING, CLOCK = "ledger: writing", "ledger: sharing", "ledger: clock"

_ADVICE = {
    "write": "Give a folder that this user may write, on every machine.",
    "read": "Give a place where a file can be read as soon as it is written.",
    "replace": "Give a file system whose rename replaces a file.",
    "claim": (
        "Claims need hard links, or conditional puts on an object store. Mounts of object stores often lack links: "
        "give the URI of the store (s3://, gs:// or abfss://) instead of the path."
    ),
    "delete": "Give a place that shows its current files, without a cache of listings.",
}


@dataclass(frozen=True, slots=True)
class ExecutorVisit:
    """What one executor found: whether it sees the file of the driver, and the result of its trial.

    `trial` is None if it does not see the file, because it then writes nothing. `returned` tells whether the driver
    sees the file that the executor left in return.
    """

    host: str
    sight: Sight
    trial: Trial | None = None
    returned: Sight | None = None


def writing_finding(location: str, trials: Mapping[str, Trial]) -> Finding:
    """Judge the trials of all machines, by name."""
    for machine, trial in trials.items():
        if trial.problem:
            found = f"{machine} cannot {trial.step} files at '{location}': {trial.problem.rstrip('.')}"
            return failure(WRITING, found, _ADVICE.get(trial.step, ""))
    slowest = max(trial.seconds for trial in trials.values())
    return ok(WRITING, f"write, sync, replace, claim and delete work at '{location}'; a file takes {slowest:.3f} s")


def sharing_finding(location: str, visits: list[ExecutorVisit], home: str) -> Finding:
    """Judge whether the executors and `home`, the machine of the driver, see each other's files."""
    shared = "Give a path on a file system that all machines mount, or the URI of an object store."
    fresh = "Switch off the mount's cache of listings (NFS: lookupcache=none,actimeo=0), or use an object store."
    for visit in visits:
        host = visit.host
        if visit.sight.problem:
            return failure(SHARING, f"'{host}' cannot read '{location}': {visit.sight.problem.rstrip('.')}", shared)
        if not visit.sight.is_seen:
            return failure(SHARING, f"'{host}' does not see at '{location}' what {home} writes there", shared)
        if visit.returned is not None and not visit.returned.is_seen:
            return failure(SHARING, f"{home} does not see at '{location}' what '{host}' writes there", shared)
    slow = max(visits, key=lambda visit: max(_waits(visit)))
    if max(_waits(slow)) > 0:
        found = f"a file at '{location}' appeared on another machine only after {max(_waits(slow)):.1f} s"
        return failure(SHARING, f"{found} ('{slow.host}')", fresh)
    hosts = len({visit.host for visit in visits})
    return ok(SHARING, f"{home} and {hosts} {'host' if hosts == 1 else 'hosts'} with executors see the same files")


def client_finding(location: str, sight: Sight) -> Finding:
    """Judge whether a client of Spark Connect sees the ledger of the cluster."""
    check = "ledger: client"
    if sight.is_seen:
        return ok(check, "this client sees the files of the executors")
    why = f": {sight.problem.rstrip('.')}" if sight.problem else ""
    found = f"this client does not see '{location}' as the executors do{why}"
    return warning(check, found, "Streams work. Ledger.open(…).batch() needs a place that the client shares too.")


def storage_clock_finding(trials: Mapping[str, Trial]) -> Finding:
    """Judge the clock of the storage beside those of the machines: a ledger compares them."""
    offsets = {machine: Offset(trial.low, trial.high) for machine, trial in trials.items()}
    return clock_finding(CLOCK, {m: Offset(-o.high, -o.low) for m, o in offsets.items()}, "the ledger's files")


def _waits(visit: ExecutorVisit) -> tuple[float, float]:
    return visit.sight.seconds, visit.returned.seconds if visit.returned else 0.0
