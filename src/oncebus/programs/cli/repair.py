"""`oncebus repair`: repairs a data folder that keeps the broker from starting."""

from __future__ import annotations

from typing import Any

import click

from oncebus.programs.cli.serve import settings_of, settings_options
from oncebus.values.settings import SETTINGS

_EXAMPLE = "oncebus repair ledger --data ./oncebus-data"
_USED = ("data", "log_format", "log_level")


@click.group(short_help="Repair the data folder of a stopped broker.", epilog=f"Example: {_EXAMPLE}")
def repair() -> None:
    """Repair the data folder of a broker that is stopped."""


@repair.command(short_help="Start a new ledger and forget all ids.", epilog=f"Example: {_EXAMPLE}")
@settings_options(*(name for name in SETTINGS if name not in _USED))
def ledger(settings_file: str | None, **given: Any) -> None:
    """Start a new ledger in place of one that is lost, damaged or from another copy. The broker forgets all ids.

    No message is lost. But if a message that was sent before is sent again, it is not recognized as a duplicate. The
    old ledger moves to a folder beside it. Stop the broker first. If the command is interrupted, run it again.
    """
    settings = settings_of(given, settings_file)
    from oncebus.broker.clock import wall_time
    from oncebus.engine.folders import Folders
    from oncebus.engine.repair import give_up_ledger
    from oncebus.programs.serve.checks import while_stopped

    data = settings.data.absolute()
    with while_stopped(data):
        aside = give_up_ledger(Folders(data), wall_time())
    click.echo("All ids are forgotten." + (f" The old ledger is now '{aside}'." if aside else ""))
