"""Tests that every command and flag is in the docs, and that every example runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tools.cli_reference import SHARED, Shared, commands, example_of, reference, written_into

from oncebus.programs.cli import COMMANDS, main

from .served_broker import Served, served_broker
from .test_cli_deploy import TEMPLATE

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
ALL = dict(commands())
LEAVES = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}

# These run until they are stopped, or need Spark, a ledger, a stopped broker or a shell. Their own tests run them.
RUN_ELSEWHERE = {
    "serve",
    "warm-up",
    "gateway",
    "pipeline",
    "connection-string",
    "token",
    "dedup",
    "ledger",
    "doctor",
    "repair",
}
RUNNABLE = [path for path in LEAVES if path.split()[1] not in RUN_ELSEWHERE]


def test_the_reference_in_the_docs_is_up_to_date() -> None:
    text = DOCS.read_text()
    assert reference() in text, "Run: python tools/cli_reference.py docs/reference/cli.md"
    assert written_into(text) == text


def section_of(heading: str) -> str:
    return re.split(r"\n#{3,4} ", DOCS.read_text().partition(f"# {heading}\n")[2])[0]


def test_every_command_and_every_flag_is_in_the_docs() -> None:
    assert set(COMMANDS) == {path.split()[1] for path in ALL}
    for path, command in ALL.items():
        section = section_of(f"`{path}`")
        assert section, path
        section += "".join(section_of(shared.heading) for shared in SHARED if shared.link in section)
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert all(f"`{name}" in section or f", {name}" in section for name in option.opts), (path, option.opts)


@pytest.mark.parametrize("shared", SHARED, ids=lambda shared: shared.heading)
def test_shared_options_are_listed_once(shared: Shared) -> None:
    rows = [f"| `{names}` | {text} |" for names, text in shared.records()]
    takers = [section for path in LEAVES if shared.link in (section := section_of(f"`{path}`"))]
    assert len(takers) > 10
    assert all(row in section_of(shared.heading) for row in rows)
    assert not any(row in section for row in rows for section in takers)


@pytest.mark.parametrize("path", list(ALL))
def test_the_help_of_every_command_ends_with_an_example_of_it(path: str) -> None:
    text = " ".join(CliRunner().invoke(main, [*path.split()[1:], "--help"]).output.split())
    example = text.rpartition("Example: ")[2]
    assert path in example
    assert shlex.split(example)


@pytest.mark.parametrize("path", list(ALL))
def test_every_command_says_what_it_does_in_a_sentence(path: str) -> None:
    command = ALL[path]
    assert command.help
    assert command.help.split("\n\n")[0].strip().endswith(".")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, (path, option.opts)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples in an order in which each finds the entities that it needs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "template.json").write_text(TEMPLATE)
    order = {"create": 1, "show": 2, "list": 2, "update": 3, "delete": 5}
    kinds = {"queue": 1, "topic": 2, "subscription": 3, "rule": 4}

    def turn(path: str) -> tuple[int, int]:
        word, kind = path.split()[-1], path.split()[1]
        step = order.get(word, 4)
        return step, kinds.get(kind, 9) * (-1 if step == 5 else 1)

    with served_broker(tmp_path / "data") as served:
        for path in sorted(RUNNABLE, key=turn):
            _run(served, path)
        for kind in ("queue", "topic"):
            assert served.json(kind, "list") == []


def _run(served: Served, path: str) -> None:
    program, *words = shlex.split(example_of(LEAVES[path]))
    assert program == "oncebus"
    result = served.run(*words)
    assert result.exit_code == 0, (path, result.output)
