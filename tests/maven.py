"""Lets Maven fetch libraries, once for each pom. Programs that use them run without Maven."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.clients import suite

FETCH = ("mvn", "--batch-mode", "--quiet", "--file", "pom.xml", "dependency:copy-dependencies")


def missing(tests: str) -> str | None:
    """Return why nothing can be fetched and compiled, so that `tests` are not run; or None."""
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            return f"{tests} not run: {program} is not installed"
    return None


def libraries(name: str, folder: Path) -> Path:
    """Return the folder `build/NAME` with the libraries of `folder/pom.xml`, fetched if the pom has changed."""
    with suite.made(name, [folder / "pom.xml"]) as (libraries, is_made):
        if not is_made:
            suite.build(folder, *FETCH, f"-DoutputDirectory={libraries}")
    return libraries
