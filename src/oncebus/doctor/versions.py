"""Decides whether the versions of Python, Java and packages on this machine can be used."""

from __future__ import annotations

import re

from oncebus.doctor.findings import Finding, failure, ok

# As in pyproject.toml; a test compares.
LEAST_PYTHON = (3, 11)
LEAST_JAVA = 17
PACKAGES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...] | None]] = {
    "pyspark": ("PySpark", (4, 0), (5,)),
    "pyarrow": ("PyArrow", (18,), None),
}
"""The title of each package, its least version, and the first version that is too new."""

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: `4.3.0.dev1` gives (4, 3, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def minor(version: str) -> str:
    """Return a version without its patch level: `3.11.2` gives `3.11`."""
    return version_text(numbers(version)[:2])


def version_text(version: tuple[int, ...]) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


def python_finding(version: tuple[int, ...], executable: str) -> Finding:
    """Judge the Python of this process."""
    found = f"{version_text(version[:3])} ('{executable}')"
    if version[:2] < LEAST_PYTHON:
        return failure("Python", found, f"Install Python {version_text(LEAST_PYTHON)} or later.")
    return ok("Python", found)


def java_finding(path: str | None, answer: str, home: str | None) -> Finding:
    """Judge the Java that Spark starts. `answer` is the output of `java -version`, `home` is JAVA_HOME."""
    advice = f"Install Java {LEAST_JAVA} or later, or set JAVA_HOME to it."
    if path is None:
        return failure("Java", f"JAVA_HOME is '{home}', which has no bin/java" if home else "there is no Java", advice)
    found = _JAVA_VERSION.search(answer)
    if found is None:
        return failure("Java", f"'{path}' does not tell its version: {answer.strip()[:200] or 'no answer'}", advice)
    version = f"{found[1]}{found[2]} ('{path}')"
    return ok("Java", version) if int(found[1]) >= LEAST_JAVA else failure("Java", version, advice)


def package_finding(name: str, version: str | None) -> Finding:
    """Judge the version of a package of this process. `version` is None if it is not installed."""
    title, least, too_new = PACKAGES[name]
    wanted = f"{name}>={version_text(least)}" + (f",<{version_text(too_new)}" if too_new else "")
    advice = f"Run: pip install '{wanted}'"
    if version is None:
        return failure(title, "not installed", advice)
    if numbers(version) < least or (too_new is not None and numbers(version) >= too_new):
        return failure(title, f"{version} is not supported", advice)
    return ok(title, version)


def spark_finding(master: str, spark: str, pyspark: str, *, is_remote: bool) -> Finding:
    """Judge the version of Spark itself, beside the PySpark of this process."""
    found = f"{spark} at '{master}'"
    if numbers(spark) == numbers(pyspark):
        return ok("Spark", found)
    if is_remote and numbers(spark)[:1] == numbers(pyspark)[:1]:
        # Spark Connect is made for clients of another version.
        return ok("Spark", f"{found}; PySpark here is {pyspark}")
    advice = f"Install the PySpark of the cluster: pip install pyspark=={version_text(numbers(spark))}"
    return failure("Spark", f"{found}, but PySpark here is {pyspark}", advice)
