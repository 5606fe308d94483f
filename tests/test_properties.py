"""Property tests draw the same examples in each run; a random search can be repeated and keeps what it finds."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, InMemoryExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.properties import examples, search_from
from tests.suites import TESTS

SAME = settings.get_profile("same")
RANDOM = settings.get_profile("random")


def drawn(with_settings: settings, prepare: Callable[[Any], object] = lambda test: None) -> list[int]:
    found: list[int] = []

    @with_settings
    @given(st.integers())
    def test(value: int) -> None:
        found.append(value)

    prepare(test)
    test()
    return found


def searched(number: int, database: ExampleDatabase | None = None) -> list[int]:
    own = settings(RANDOM, max_examples=50, database=database or InMemoryExampleDatabase())
    return drawn(own, lambda test: search_from(number, [SimpleNamespace(obj=test)]))  # type: ignore[list-item]


def test_every_run_draws_the_same_whatever_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn(SAME)
    (tmp_path / "full_of_constants.py").write_text(f"FOUND = {[10**9 + 7 * at for at in range(1000)]}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("full_of_constants")
    assert drawn(SAME) == before
    assert SAME.database is None


def test_a_search_draws_the_same_only_from_the_same_seed() -> None:
    assert searched(7) == searched(7)
    assert searched(7) != searched(8)


def test_a_search_keeps_what_fails_and_tries_it_first() -> None:
    database = InMemoryExampleDatabase()
    found: list[int] = []

    @settings(RANDOM, database=database)
    @given(st.integers())
    def test(value: int) -> None:
        found.append(value)
        assert value < 1000

    for number in (1, 2):
        found.clear()
        search_from(number, [SimpleNamespace(obj=test)])  # type: ignore[list-item]
        with pytest.raises(AssertionError):
            test()
    assert found[0] == 1000


def test_a_search_draws_the_steps_of_a_machine_from_the_seed_too() -> None:
    found: list[int] = []

    class Machine(RuleBasedStateMachine):
        @rule(value=st.integers())
        def step(self, value: int) -> None:
            found.append(value)

    Machine.TestCase.settings = settings(RANDOM, max_examples=5, database=None)

    def run(number: int) -> list[int]:
        found.clear()
        test = Machine.TestCase("runTest")
        search_from(number, [SimpleNamespace(obj=test.runTest)])  # type: ignore[list-item]
        test.runTest()
        return [*found]

    assert run(7) == run(7) != run(8)


def test_a_search_draws_more() -> None:
    before = settings.get_current_profile_name()
    try:
        settings.load_profile("same")
        assert examples(30).max_examples == 30
        settings.load_profile("random")
        assert examples(30).max_examples == 300
    finally:
        settings.load_profile(before)


def _draws_without_a_seed(call: ast.Call, imported: set[str]) -> bool:
    """Return whether this calls `random.choice()` and the like, `random.Random()` or `os.urandom()`."""
    match ast.unparse(call.func).split("."):
        case ["random", "Random"]:
            return not call.args
        case ["random", _]:
            return "random" in imported
    return ast.unparse(call.func) == "os.urandom"


def test_no_test_draws_without_a_seed() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        imported = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
        calls = [node for node in nodes if isinstance(node, ast.Call) and _draws_without_a_seed(node, imported)]
        found += [f"{path.relative_to(TESTS)}:{call.lineno} {ast.unparse(call)}" for call in calls]
    # `make history` draws a seed and prints it.
    assert [each for each in found if not each.startswith("history/__main__.py")] == []
