"""Looks at this machine: its Python, its Java and its packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from oncebus import __version__
from oncebus.doctor.executors import Own
from oncebus.doctor.findings import Finding
from oncebus.doctor.versions import PACKAGES, java_finding, package_finding, python_finding, version_text

_SECONDS = 20


def machine_findings(*, needs_java: bool) -> Iterator[Finding]:
    """Yield the findings about this machine. A client of Spark Connect needs no Java."""
    yield python_finding(sys.version_info[:3], sys.executable)
    if needs_java:
        yield _java()
    for name in PACKAGES:
        yield package_finding(name, _version(name))


def own_versions() -> Own:
    """Return the versions that the executors must have too."""
    packages = {"oncebus": __version__, "pyspark": _version("pyspark") or "", "pyarrow": _version("pyarrow") or ""}
    return Own(version_text(sys.version_info[:3]), sys.executable, packages)


def _java() -> Finding:
    """Find Java in the way in which Spark does."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    answer = ""
    if path is not None:
        try:
            done = subprocess.run(
                [path, "-version"], capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_SECONDS
            )
            answer = done.stderr + done.stdout
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answer = str(error)
    return java_finding(path, answer, home)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        pass
    try:
        # A cluster may provide a package without its metadata, as Spark's own folder does with PySpark.
        found = __import__(package).__version__
    except (ImportError, AttributeError):
        return None
    return str(found)
