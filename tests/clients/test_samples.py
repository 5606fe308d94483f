"""Runs the samples in all languages, from examples/ and the documentation, as a reader would."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from . import java, javascript
from .served import Served

ROOT = Path(__file__).parents[2]
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"
ONCE = ["received: first"]
WORKED = ["done: 1", "done: 3", "dead letter: two because of NotANumber"]
SAMPLES: dict[str, list[str]] = {
    "python/baskets.py": ["anna: 6", "bert: 6", "no more baskets"],
    "typescript/send_twice.ts": ONCE,
    "typescript/prices.ts": ["lamp: 120", "desk: 400"],
    "python/send_twice.py": ONCE,
    "python/worker.py": WORKED,
    "javascript/send_twice.mjs": ONCE,
    "javascript/worker.mjs": WORKED,
    "java/SendTwice.java": ONCE,
    "java/JmsOrders.java": ["received: one coffee"],
}
"""The expected output of each sample. The slowest come first."""
OF_FRAMEWORKS = {
    "airflow/orders.py",
    "camel/Orders.java",
    "celery/tasks.py",
    "spring/Orders.java",
    "tracing/shop.py",
}
"""The samples that the tests in tests/frameworks run."""
RUN = [name for name in SAMPLES if java.missing() is None or not name.startswith("java/")]
LANGUAGES = {"python": ".py", "javascript": ".mjs", "typescript": ".ts", "java": ".java"}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """Return the samples in a language on a page of the documentation."""
    return [code for found, code in _BLOCK.findall((DOCS / page).read_text()) if found == language]


def run_python(code: str, served: Served) -> str:
    with TemporaryDirectory() as name:
        (Path(name) / "sample.py").write_text(code)
        words = [sys.executable, "-W", "error", "sample.py"]
        return javascript.run(Path(name), words, javascript.environment(served))


def run_sample(name: str, served: Served) -> str:
    """Run a sample unchanged, except that it gets its own queue, so that samples can run at the same time."""
    path = EXAMPLES / name
    code = path.read_text().replace('"orders"', f'"{served.queue("detecting")}"')
    if path.suffix == ".py":
        return run_python(code, served)
    if path.suffix == ".java":
        code = code.replace("localhost:5672", f"localhost:{served.port}")
        return java.run_file(code, javascript.environment(served, None, SERVICEBUS_KEY=served.root.primary_key))
    environment = javascript.environment(served)
    with javascript.workplace(javascript.HERE / "package.json", EXAMPLES / "typescript" / "tsconfig.json") as folder:
        (folder / path.name).write_text(code)
        if path.suffix == ".mjs":
            return javascript.run(folder, ["node", path.name], environment)
        javascript.run(folder, ["node", "node_modules/typescript/bin/tsc"], environment)
        return javascript.run(folder, ["node", f"compiled/{path.stem}.js"], environment)


@pytest.fixture(scope="module")
def said(served: Served) -> Iterator[dict[str, Future[str]]]:
    """Run the samples, some at the same time, and yield their outputs."""
    # The samples with baskets mostly wait.
    with ThreadPoolExecutor(4) as threads:
        yield {name: threads.submit(run_sample, name, served) for name in RUN}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_does_what_it_says(said: dict[str, Future[str]], name: str) -> None:
    if name not in RUN:
        pytest.skip(str(java.missing()))
    output = said[name].result(javascript.PATIENCE).splitlines()
    # Concurrent messages and sessions have no fixed order.
    assert sorted(output) == sorted(SAMPLES[name])


def test_every_sample_is_run() -> None:
    found = {str(path.relative_to(EXAMPLES)) for suffix in LANGUAGES.values() for path in EXAMPLES.glob(f"*/*{suffix}")}
    assert found == {*SAMPLES, *OF_FRAMEWORKS}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_documentation_shows_samples_that_are_run(language: str) -> None:
    files = [path.read_text() for path in (EXAMPLES / language).glob(f"*{LANGUAGES[language]}")]
    shown = blocks("guides/clients.md", language)
    assert shown
    assert [code for code in shown if code not in files] == []


def test_the_sample_of_the_dialect_runs(served: Served) -> None:
    (code, *_) = blocks("internals/servicebus.md", "python")
    shown = "…the line that oncebus serve prints…"
    assert shown in code
    assert run_python(code.replace(shown, served.string()), served) == ""
    assert [message["messageId"] for message in served.http.drops("orders")].count("12345.2017/Payment") == 0
    assert served.http.receive("orders", 60) == ("12345.2017/Payment", "hello")
