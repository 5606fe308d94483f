"""Applications with Camel and Spring Cloud Azure run on the broker, with only their connection string changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients import java
from tests.programs.serve.clients import Client
from tests.programs.serve.programs import until

from . import applications

GUIDE = applications.HERE.parents[1] / "docs" / "guides" / "frameworks.md"
PATIENCE = 120.0
WHY_NOT = java.missing()

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@pytest.mark.parametrize("file", ["camel/Orders.java", "spring/Orders.java", "spring/application.properties"])
def test_the_guide_shows_the_applications_that_are_run(file: str) -> None:
    assert f"\n{(applications.EXAMPLES / file).read_text()}```" in GUIDE.read_text()


@pytest.fixture(scope="module")
def commands() -> dict[str, list[str]]:
    """Return the command of each application. Both are built at once, because fetching is mostly waiting."""
    names = ("camel", "spring")
    with ThreadPoolExecutor() as threads:
        return dict(zip(names, threads.map(applications.command, names), strict=True))


@contextmanager
def running(name: str, command: list[str], folder: Path, connection: str) -> Iterator[Path]:
    """Run an application for the block, and yield the file with its output."""
    shutil.copytree(applications.EXAMPLES / name, folder, dirs_exist_ok=True)
    out = folder / "out.txt"
    with out.open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "CONNECTION_STRING": connection},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        with process:
            try:
                yield out
            finally:
                process.kill()


def received(out: Path) -> list[str]:
    return sorted(line for line in out.read_text().splitlines() if line.startswith("Received: "))


def wait_for(out: Path, expected: list[str]) -> None:
    try:
        until(lambda: len(received(out)) >= len(expected), "the orders", limit=PATIENCE)
    except AssertionError as error:
        raise AssertionError(out.read_text()[-5000:]) from error
    assert received(out) == expected


def active(client: Client, queue: str) -> int:
    return client.metric("messages", entity=queue, state="active")


@pytest.mark.release
def test_a_route_of_camel_sends_and_receives(
    commands: dict[str, list[str]], connection: str, client: Client, tmp_path: Path
) -> None:
    assert client.put("camel-orders")[0] == 201
    with running("camel", commands["camel"], tmp_path, connection) as out:
        wait_for(out, ["Received: order 1", "Received: order 2", "Received: order 3"])
        until(lambda: active(client, "camel-orders") == 0, "Camel completes them", limit=PATIENCE)


@pytest.mark.release
def test_spring_sends_and_receives_and_a_duplicate_is_dropped(
    commands: dict[str, list[str]], connection: str, client: Client, tmp_path: Path
) -> None:
    assert client.put("spring-orders", {"RequiresDuplicateDetection": "true"})[0] == 201
    with running("spring", commands["spring"], tmp_path, connection) as out:
        # The last one comes after the duplicate.
        wait_for(out, ["Received: order 1", "Received: order 2"])
        until(lambda: active(client, "spring-orders") == 0, "Spring completes them", limit=PATIENCE)
    assert [drop["messageId"] for drop in client.drops("spring-orders")] == ["order-1"]
