"""A group of commands that knows the nearest one to a word that is none of them."""

from __future__ import annotations

import difflib

import click


class Group(click.Group):
    """Not all versions of click that will do suggest a command, and none does where commands are loaded late."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See `click.Group`."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            nearest = difflib.get_close_matches(name.lower(), self.list_commands(ctx), n=1)
            hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)
