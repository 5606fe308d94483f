from __future__ import annotations

import pytest
from click.testing import CliRunner

from oncebus.programs.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["quue"], "No such command 'quue'. Did you mean 'queue'?"),
        (["Queues", "list"], "No such command 'Queues'. Did you mean 'queue'?"),
        (["subscriptions"], "No such command 'subscriptions'. Did you mean 'subscription'?"),
        (["queue", "craete"], "No such command 'craete'. Did you mean 'create'?"),
        (["rule", "lists"], "No such command 'lists'. Did you mean 'list'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_the_error_for_a_misspelt_command_suggests_the_nearest_one(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {said}\n")


def test_an_option_in_place_of_a_command_gets_no_suggestion() -> None:
    assert "No such option" in CliRunner().invoke(main, ["queue", "--nme", "orders"]).stderr
