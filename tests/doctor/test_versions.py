from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from oncebus.doctor.findings import Finding, Status, failure, is_passed, ok, skip, warning
from oncebus.doctor.versions import (
    LEAST_PYTHON,
    PACKAGES,
    java_finding,
    minor,
    numbers,
    package_finding,
    python_finding,
    spark_finding,
    version_text,
)

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_the_versions_are_those_of_the_package() -> None:
    assert PROJECT["requires-python"] == f">={version_text(LEAST_PYTHON)}"
    extras = PROJECT["optional-dependencies"]
    needed = {re.split(r"[<>=]", each)[0]: each for each in (*PROJECT["dependencies"], *extras["spark"])}
    for name, (_, least, too_new) in PACKAGES.items():
        assert needed[name] == f"{name}>={version_text(least)}" + (f",<{version_text(too_new)}" if too_new else "")


def test_only_a_failure_makes_the_command_fail() -> None:
    fine = [ok("a", "b"), warning("a", "b", "c"), skip("a", "b")]
    assert is_passed(fine)
    assert not is_passed([*fine, failure("a", "b", "c")])


def test_a_finding_is_one_line() -> None:
    assert failure("a", "two\nlines", "Do\nthis.").text == "two lines. Do this."
    assert ok("a", "one  line").text == "one line"


def test_numbers_of_versions() -> None:
    assert numbers("4.3.0.dev1") == (4, 3, 0)
    assert numbers("18.1") == (18, 1)
    assert numbers("unknown") == ()
    assert minor("3.11.2") == "3.11"


def test_python() -> None:
    assert python_finding((3, 12, 1), "/bin/python") == ok("Python", "3.12.1 ('/bin/python')")
    old = python_finding((3, 10, 9), "/bin/python")
    assert (old.status, old.text) == (Status.FAILED, "3.10.9 ('/bin/python'). Install Python 3.11 or later.")


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK …', Status.OK, "17.0.15 ('/bin/java')"),
        ('openjdk version "21" 2023-09-19', Status.OK, "21 ('/bin/java')"),
        ('Picked up JAVA_OPTIONS\nopenjdk version "25-ea" 2025', Status.OK, "25-ea ('/bin/java')"),
        ('java version "1.8.0_301"', Status.FAILED, "8.0_301 ('/bin/java'). Install Java 17 or later"),
        ('openjdk version "11.0.2"', Status.FAILED, "11.0.2 ('/bin/java'). Install Java 17 or later"),
        ("", Status.FAILED, "'/bin/java' does not tell its version: no answer. Install Java 17"),
    ],
)
def test_java(answer: str, status: Status, text: str) -> None:
    found = java_finding("/bin/java", answer, None)
    assert found.status is status
    assert found.text.startswith(text)


def test_a_missing_java() -> None:
    advice = "Install Java 17 or later, or set JAVA_HOME to it."
    assert java_finding(None, "", None) == failure("Java", "there is no Java", advice)
    assert java_finding(None, "", "/opt/x") == failure("Java", "JAVA_HOME is '/opt/x', which has no bin/java", advice)


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.10.1"])
def test_a_supported_pyspark(version: str) -> None:
    assert package_finding("pyspark", version) == ok("PySpark", version)


@pytest.mark.parametrize("version", ["3.5.5", "5.0.0", "5"])
def test_a_pyspark_that_is_too_old_or_too_new(version: str) -> None:
    found = package_finding("pyspark", version)
    assert (found.status, found.text) == (
        Status.FAILED,
        f"{version} is not supported. Run: pip install 'pyspark>=4.0,<5'",
    )


def test_pyarrow() -> None:
    assert package_finding("pyarrow", "18.0.0") == ok("PyArrow", "18.0.0")
    assert package_finding("pyarrow", "17.0.0").status is Status.FAILED
    assert package_finding("pyarrow", None).text == "not installed. Run: pip install 'pyarrow>=18'"


def test_spark_beside_pyspark() -> None:
    def found(spark: str, pyspark: str, *, is_remote: bool = False) -> Finding:
        return spark_finding("spark://head:7077", spark, pyspark, is_remote=is_remote)

    assert found("4.3.0", "4.3.0") == ok("Spark", "4.3.0 at 'spark://head:7077'")
    other = found("4.1.2", "4.3.0")
    assert other.status is Status.FAILED
    assert other.text.endswith(
        "but PySpark here is 4.3.0. Install the PySpark of the cluster: pip install pyspark==4.1.2"
    )
    # Spark Connect is made for clients of another version.
    assert found("4.1.2", "4.3.0", is_remote=True).status is Status.OK
    assert found("3.5.5", "4.3.0", is_remote=True).status is Status.FAILED
