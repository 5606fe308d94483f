"""Tests the quick start of README.md, as a reader pastes it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from oncebus.programs.cli import main

from .documented import reading
from .pages import DOCS, blocks

ROOT = DOCS.parent
QUEUE = ["queue", "create", "--name", "orders", "--enable-duplicate-detection"]


def lines() -> list[list[str]]:
    """Return the commands of both terminals, without comments."""
    typed = [block.text for block in blocks("../README.md") if block.language == "sh"]
    assert len(typed) == 2
    return [shlex.split(line, comments=True) for text in typed for line in text.splitlines()]


def test_the_flags_and_files_of_the_first_terminal_exist() -> None:
    [words] = [line[1:] for line in lines() if line[:2] == ["oncebus", "serve"]]
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    given = command.make_context("serve", words[1:]).params
    assert (ROOT / str(given["entities"])).is_file()


def test_the_second_terminal_shows_one_received_and_one_dropped_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [line[1:] for line in lines() if line[0] == "oncebus" and line[1] != "serve"]
    with reading(tmp_path) as reader:
        assert reader.served.run(*QUEUE).exit_code == 0
        said = {}
        for words in commands:
            result = reader.served.run(*words)
            assert result.exit_code == 0, result.output
            said[words[0]] = result.stdout
    assert list(said) == ["send", "receive", "duplicates"]
    assert said["send"] == "1 message sent to 'orders'.\n"
    assert said["receive"] == "1  order-1  one coffee\n"
    assert "order-1" in said["duplicates"]
    assert "No duplicates" not in said["duplicates"]
