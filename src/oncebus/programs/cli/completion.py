"""`oncebus completion`: prints a script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM = "oncebus"


@click.command(
    short_help="Print a script that completes commands in a shell.",
    epilog="Example: oncebus completion bash",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes the commands and options of oncebus.

    For bash, put it into ~/.local/share/bash-completion/completions/oncebus; for zsh, into a file called _oncebus in a
    folder of $fpath; for fish, into ~/.config/fish/completions/oncebus.fish.
    """
    from oncebus.programs.cli import main

    made = get_completion_class(shell)
    assert made is not None
    script = made(main, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE")
    # Not `source()`: for bash, it starts a shell to learn its version.
    click.echo(script.source_template % script.source_vars())
