"""Tests that the tests which the page of promises names exist, and that `make test` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from .pages import DOCS, page

ROOT = DOCS.parent
PAGE = "reference/promises.md"


class Promise(NamedTuple):
    """A row of a table on the page."""

    number: int
    tests: list[str]


def promises() -> Iterator[Promise]:
    for line in page(PAGE).splitlines():
        if re.match(r"\| \d+ \|", line):
            cells = line.strip("| ").split(" | ")
            assert len(cells) == 4, line
            yield Promise(int(cells[0]), re.findall(r"`([^`]+)`", cells[3]))


PROMISES = list(promises())


def selection() -> str:
    """Return the markers by which `make test` chooses its tests."""
    [found] = re.findall(r"^test:.*\n\t\$\(PYTEST\) -m '([^']+)'$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """Collect the tests of all files that the page names, as `make test` does, and return their names."""
    files = sorted({test.partition("::")[0] for promise in PROMISES for test in promise.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "-m", selection()]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


def test_the_page_is_read() -> None:
    assert [promise.number for promise in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert len(PROMISES) >= 25


def test_a_test_that_make_test_leaves_out_would_be_noticed() -> None:
    assert selection() == "not torture and not release"


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: str(promise.number))
def test_every_promise_is_shown_by_tests_that_make_test_runs(promise: Promise, collected: set[str]) -> None:
    assert promise.tests
    assert [test for test in promise.tests if test not in collected] == []
