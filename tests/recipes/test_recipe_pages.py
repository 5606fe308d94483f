"""The pages name the versions that the tests run."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.docs.pages import sections

from .pages import END, HERE, KAFKA_TO_DELTA, PAGES, SPARK_CONNECT, Page

INDEX = "guides/recipes/README.md"
_NAMES = ("groupId", "artifactId", "version")


def fetched(libraries: str) -> set[str]:
    """Return the packages that a pom names, as spark-submit takes them."""
    root = ElementTree.parse(HERE / libraries / "pom.xml").getroot()
    found = root.findall("{*}dependencies/{*}dependency")
    return {":".join(each.findtext(f"{{*}}{name}") or "" for name in _NAMES) for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_names_the_packages_that_are_run(page: Page) -> None:
    assert set(page.packages) <= fetched(page.libraries)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_program_ends_by_waiting(page: Page) -> None:
    assert page.program.endswith(END)


def test_the_index_names_all_versions() -> None:
    text = sections(INDEX)["Versions"]
    packages = {package for page in PAGES for package in page.packages} | fetched("broker")
    assert set(re.findall(r"`([\w.-]+:[\w.-]+:[\w.-]+)`", text)) == packages
    run = {(HERE / page.libraries / "spark.txt").read_text().strip() for page in PAGES}
    assert set(re.findall(r"\| PySpark (\S+) \|", text)) == {wanted.removeprefix("pyspark==") for wanted in run}


def test_through_connect_only_the_session_differs() -> None:
    ours, theirs = (page.program.splitlines() for page in (KAFKA_TO_DELTA, SPARK_CONNECT))
    assert [line for line in ours if line not in theirs] == [
        'spark = SparkSession.builder.appName("orders").getOrCreate()'
    ]
    assert len(ours) == len(theirs)
