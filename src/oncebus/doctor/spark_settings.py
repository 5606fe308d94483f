"""Decides whether Spark's settings suit Oncebus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncebus.doctor.executors import Report
from oncebus.doctor.findings import Finding, failure, ok, warning
from oncebus.doctor.versions import numbers

Setting = Callable[[str], str]
"""Returns the value of a setting, or an empty text if it is not set."""

SOCKETS, PROTECTION, OTHERS = "Unix sockets", "protection", "settings"
SOCKETS_ENABLED = "spark.python.unix.domain.socket.enabled"
SOCKETS_FOLDER = "spark.python.unix.domain.socket.dir"
_SOCKETS_SINCE = (4, 1)

_HARMFUL = {
    "spark.python.worker.reuse": (
        "false",
        "every task starts a new Python, and reads the ledger anew",
        "Leave it out.",
    ),
    "spark.dynamicAllocation.enabled": (
        "true",
        "the number of tasks for a ledger is fixed when a query starts, by the executors of that moment",
        "Give detect_duplicates the number of parts: parts=….",
    ),
}
"""Settings with the value that costs speed, the reason and the advice."""
_MEMORY = "spark.executor.pyspark.memory"


def socket_finding(setting: Setting, pyspark: str, reports: Sequence[Report], longest: int) -> Finding:
    """Judge the sockets between Spark and its Python workers. `longest` is the longest path of their folder."""
    if numbers(pyspark) < _SOCKETS_SINCE:
        return ok(SOCKETS, f"PySpark {pyspark} has none; Python workers use TCP")
    if setting(SOCKETS_ENABLED).lower() != "true":
        found = "off: Python workers use TCP, which adds some 40 ms to a micro-batch"
        advice = f"Set {SOCKETS_ENABLED}=true, and {SOCKETS_FOLDER} to a folder of mode 0700 on every machine."
        return warning(SOCKETS, found, advice)
    folder = setting(SOCKETS_FOLDER)
    if len(folder.encode()) > longest:
        found = f"on, but {SOCKETS_FOLDER} has {len(folder.encode())} bytes"
        return failure(SOCKETS, found, f"Use a path of at most {longest} bytes: Linux limits the path of a socket.")
    for report in reports:
        if report.socket_folder is not None and report.socket_folder & 0o077:
            found = f"on, in a folder with mode {report.socket_folder & 0o7777:04o} on '{report.host}'"
            advice = "Use a folder of mode 0700: the workers do not authenticate who connects."
            return warning(SOCKETS, found, advice)
    return ok(SOCKETS, f"on, in '{folder}'" if folder else "on")


def protection_finding(missing: Sequence[str], *, is_local: bool) -> Finding:
    """Judge the protection of Spark's own ports. `missing` has the settings that are not on."""
    if is_local:
        return ok(PROTECTION, "Spark listens on this machine only")
    if missing:
        found = f"{' and '.join(missing)} off: anyone who can reach Spark's ports can run code there"
        return warning(PROTECTION, found, "Set them in spark-defaults.conf; `oncebus pipeline` insists on them.")
    return ok(PROTECTION, "Spark's machines authenticate each other and encrypt their traffic")


def other_findings(setting: Setting) -> list[Finding]:
    """Judge the other settings that matter: one finding for each that should change, or one that all is well."""
    found = [
        warning(OTHERS, f"{name}={value}: {reason}", advice)
        for name, (value, reason, advice) in _HARMFUL.items()
        if setting(name).lower() == value
    ]
    if setting(_MEMORY):
        reason = "it limits address space, and mapped files of a ledger count as such"
        found.append(warning(OTHERS, f"{_MEMORY}={setting(_MEMORY)}: {reason}", "Leave it out."))
    return found or [ok(OTHERS, "none that slows detection down")]
